{{- define "accelbind.problem" -}}
{{- $found := index . 0 }}{{ $_ := set $found "problems" (append $found.problems (index . 1)) }}
{{- end }}

{{- define "accelbind.fail" -}}
{{- if .problems }}
{{- fail (printf "change these values:\n- %s" (join "\n- " .problems)) }}
{{- end }}
{{- end }}

{{/* The keys of each map of values.yaml; `values` is the whole, `pool` one of the pools. */}}
{{- define "accelbind.knownKeys" -}}
values: [bitstreams, certificates, commonLabels, crds, deviceTypes, domains, global, images, kubelet, monitoring, namespace, networkPolicies, nodeFeatureRule, openshift, pools, webhook]
images: [certs, hookInstaller, plugin, pullPolicy, pullSecrets, webhook]
images.certs: &image [digest, repository, tag]
images.hookInstaller: *image
images.plugin: *image
images.webhook: *image
webhook: [affinity, args, env, extraVolumeMounts, extraVolumes, guard, hostNetwork, logLevel, nodeSelector, podAnnotations, podLabels, replicas, resources, tolerations]
certificates: [affinity, args, caBundle, env, existingSecret, extraVolumeMounts, extraVolumes, logLevel, nodeSelector, podAnnotations, podLabels, replicas, resources, source, tolerations]
pool: [affinity, args, cdi, enforceMappings, env, extraVolumeMounts, extraVolumes, logLevel, mode, name, nodeSelector, podAnnotations, podLabels, priorityClassName, programming, resources, tolerations, units, updateStrategy]
kubelet: [root]
bitstreams: [hostPath, volume]
crds: [fpga, install]
deviceTypes: [domains, enabled, own]
namespace: [create, labels]
networkPolicies: [enabled]
monitoring: [enabled, labels, namespace, runbookUrl]
nodeFeatureRule: [apiVersion, enabled]
openshift: [scc]
{{- end }}

{{/* Takes what was found, the path of a map, the map, and its keys. */}}
{{- define "accelbind.keys" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $known := index . 3 }}
{{- range keys (index . 2) | sortAlpha }}
{{- if not (has . $known) }}
{{- include "accelbind.problem" (list $found (printf "%s%s is not a value of this chart: use one of %s" $path . (join ", " $known))) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes what was found, the path of values with `args`, these, and which value each flag has. */}}
{{- define "accelbind.arguments" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $given := index . 2 }}{{ $flags := index . 3 }}
{{- $fixed := list "--ca-secret" "--host-root" "--kubelet-dir" "--metrics-port" "--namespace" "--node-name" "--pod-logs-dir" "--port" "--root" "--service" "--state-dir" "--tls-secret" "--webhook-config" }}
{{- $set := list "ACCELBIND_CLEAR_ERRORS" "ACCELBIND_LOG_FORMAT" "MALLOC_MMAP_THRESHOLD_" "NODE_NAME" }}
{{- $said := list }}
{{- range $given.args }}
{{- $said = append $said (list "args" . (splitList "=" . | first | replace "--no-" "--")) }}
{{- end }}
{{- range $given.env }}
{{- $said = append $said (list "env" .name (printf "--%s" (.name | trimPrefix "ACCELBIND_" | lower | replace "_" "-"))) }}
{{- end }}
{{- range $said }}
{{- $is := printf "%s.%s has %s" $path (index . 0) (index . 1) }}{{ $flag := index . 2 }}
{{- if hasKey $flags $flag }}
{{- include "accelbind.problem" (list $found (printf "%s: use the value %s in its place" $is (get $flags $flag))) }}
{{- else if has (index . 1) $set }}
{{- include "accelbind.problem" (list $found (printf "%s, which the chart sets itself: remove it, or use a flag in %s.args" $is $path)) }}
{{- else if has $flag $fixed }}
{{- include "accelbind.problem" (list $found (printf "%s: remove it, since the chart's ports, mounts and rights are for its own value" $is)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What all workloads have. Takes what was found, the path of their values, and these. */}}
{{- define "accelbind.workload" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $given := index . 2 }}
{{- include "accelbind.keys" (list $found (print $path ".affinity.") ($given.affinity | default dict) (list "nodeAffinity" "podAffinity" "podAntiAffinity")) }}
{{- range $at, $toleration := $given.tolerations }}
{{- include "accelbind.keys" (list $found (printf "%s.tolerations[%d]." $path $at) $toleration (list "effect" "key" "operator" "tolerationSeconds" "value")) }}
{{- end }}
{{- include "accelbind.keys" (list $found (print $path ".resources.") ($given.resources | default dict) (list "limits" "requests")) }}
{{- range $which, $amounts := $given.resources }}
{{- if kindIs "map" $amounts }}
{{- range $name, $amount := $amounts }}
{{- if not (regexMatch "^([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([KMGTPE]i|[mkMGTPE]|[eE][-+]?[0-9]+)?$" (toString $amount)) }}
{{- include "accelbind.problem" (list $found (printf "%s.resources.%s.%s %q is not a quantity: use a number with a suffix of Kubernetes, such as 100m or 256Mi" $path $which $name (toString $amount))) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- include "accelbind.volumes" (list $found $path $given) }}
{{- include "accelbind.checkLabels" (list $found (print $path ".podLabels") ($given.podLabels | default dict)) }}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/component" }}
{{- if hasKey ($given.podLabels | default dict) . }}
{{- include "accelbind.problem" (list $found (printf "%s.podLabels has %s, by which the chart selects the pods: remove it" $path .)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes what was found, the path of labels, and these. */}}
{{- define "accelbind.checkLabels" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}
{{- range $key, $value := index . 2 }}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $key) }}
{{- include "accelbind.problem" (list $found (printf "%s: %q is not the key of a label: use letters, digits, - _ and ., such as example.com/team" $path $key)) }}
{{- else if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" (toString $value)) }}
{{- include "accelbind.problem" (list $found (printf "%s.%s %q is not the value of a label: use at most 63 letters, digits, - _ and ." $path $key (toString $value))) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes what was found, the path of values with volumes, and these. */}}
{{- define "accelbind.volumes" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $given := index . 2 }}
{{- $names := list }}{{ $taken := list }}
{{- range $given.extraVolumes }}
{{- if has .name (list "bitstreams" "cdi" "dev" "device-plugins" "device-types" "hook" "pod-logs" "pod-resources" "state" "sys" "tls") }}
{{- include "accelbind.problem" (list $found (printf "%s.extraVolumes has %s, a name that the chart uses itself: rename the volume" $path .name)) }}
{{- else if has .name $names }}
{{- include "accelbind.problem" (list $found (printf "%s.extraVolumes has %s twice: rename one of them" $path .name)) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- range $mount := $given.extraVolumeMounts }}
{{- if not (has .name $names) }}
{{- include "accelbind.problem" (list $found (printf "%s.extraVolumeMounts has %s, which is no volume of %s.extraVolumes: add it there" $path .name $path)) }}
{{- end }}
{{- $at := .mountPath | default "" }}{{ $is := printf "%s.extraVolumeMounts has %s at" $path .name }}
{{- if not (regexMatch "^/[^:]*$" $at) }}
{{- include "accelbind.problem" (list $found (printf "%s %q, which is not a path: use an absolute one" $is $at)) }}
{{- else }}
{{- $at = clean $at }}
{{- range $ours := list "/etc/accelbind/tls" "/etc/accelbind/device-types" "/host/dev" "/host/sys" "/opt/accelbind" "/run/accelbind" "/srv/intel.com/fpga" "/var/lib/kubelet/device-plugins" "/var/lib/kubelet/pod-resources" "/var/log/pods" "/var/run/cdi" "/var/run/secrets/kubernetes.io/serviceaccount" }}
{{- if or (hasPrefix (print (trimSuffix "/" $at) "/") (print $ours "/")) (hasPrefix (print $ours "/") (print (trimSuffix "/" $at) "/")) }}
{{- include "accelbind.problem" (list $found (printf "%s %s, where the chart has %s: use another path" $is $at $ours)) }}
{{- end }}
{{- end }}
{{- if has $at $taken }}
{{- include "accelbind.problem" (list $found (printf "%s %s, where there is another mount: use another path" $is $at)) }}
{{- end }}
{{- $taken = append $taken $at }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes what was found and the pools. */}}
{{- define "accelbind.checkPools" -}}
{{- $found := index . 0 }}{{ $earlier := list }}
{{- $flags := dict "--log-level" "logLevel" "--mode" "mode" "--units" "units" "--enforce-mappings" "enforceMappings" "--programming" "programming" "--hook-path" "programming" "--cdi" "cdi" "--cdi-dir" "cdi" "--device-types" "deviceTypes" "--resource-domain" "deviceTypes.domains" }}
{{- range $at, $given := index . 1 }}
{{- $path := printf "pools[%d]" $at }}
{{- include "accelbind.arguments" (list $found $path $given $flags) }}
{{- include "accelbind.workload" (list $found $path $given) }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$" $given.name) }}
{{- include "accelbind.problem" (list $found (printf "%s.name %q is not a name: use at most 32 lower-case letters, digits and -" $path $given.name)) }}
{{- end }}
{{- if and (hasKey $given "nodeSelector") (not $given.nodeSelector) }}
{{- include "accelbind.problem" (list $found (printf "%s.nodeSelector is empty: name a label, or remove it for accelbind.dev/plugin: \"true\"" $path)) }}
{{- end }}
{{- $mode := $given.mode | default "af" }}
{{- if and (hasKey $given "units") (ne $mode "units") }}
{{- include "accelbind.problem" (list $found (printf "%s.units is for mode units: remove it, or set the pool's mode to units" $path)) }}
{{- end }}
{{- if and (eq ($given.programming | default "") "oci-hook") (ne $mode "region") }}
{{- include "accelbind.problem" (list $found (printf "%s.programming oci-hook needs mode region: set the pool's mode to region" $path)) }}
{{- end }}
{{- include "accelbind.keys" (list $found (print $path ".updateStrategy.") ($given.updateStrategy | default dict) (list "rollingUpdate" "type")) }}
{{- include "accelbind.keys" (list $found (print $path ".updateStrategy.rollingUpdate.") (dig "rollingUpdate" dict ($given.updateStrategy | default dict)) (list "maxSurge" "maxUnavailable")) }}
{{- $rolling := dig "rollingUpdate" "maxUnavailable" "10%" ($given.updateStrategy | default dict) | toString }}
{{- if not (regexMatch "^([1-9][0-9]*|([1-9][0-9]?|100)%)$" $rolling) }}
{{- include "accelbind.problem" (list $found (printf "%s.updateStrategy.rollingUpdate.maxUnavailable %q stops updates: use a number of at least 1, or a percentage such as 10%%" $path $rolling)) }}
{{- end }}
{{- $selector := $given.nodeSelector | default (dict "accelbind.dev/plugin" "true") }}
{{- $pool := dict "name" $given.name "selector" $selector "affinity" ($given.affinity | default dict) }}
{{- range $other := $earlier }}{{ include "accelbind.apart" (list $found $other $pool) }}{{ end }}
{{- $earlier = append $earlier $pool }}
{{- end }}
{{- end }}

{{/* Two pools must not share nodes, as far as selectors show. Takes what was found and the pools. */}}
{{- define "accelbind.apart" -}}
{{- $found := index . 0 }}{{ $one := index . 1 }}{{ $two := index . 2 }}
{{- $fix := "give both a label with different values, such as example.com/pool: a and example.com/pool: b" }}
{{- if eq $one.name $two.name }}
{{- include "accelbind.problem" (list $found (printf "two pools are called %s: rename one of them" $one.name)) }}
{{- else if and (eq (toJson $one.selector) (toJson $two.selector)) (eq (toJson $one.affinity) (toJson $two.affinity)) }}
{{- include "accelbind.problem" (list $found (printf "pools %s and %s select the same nodes, and a node must be in one pool only: %s" $one.name $two.name $fix)) }}
{{- else if not (or $one.affinity $two.affinity) }}
{{- /* What affinity selects is not known here. */}}
{{- range $outer, $inner := dict $one.name $two $two.name $one }}
{{- $selector := ternary $one.selector $two.selector (eq $outer $one.name) }}{{ $within := true }}
{{- range $key, $value := $selector }}
{{- if ne (get $inner.selector $key | default "") $value }}{{ $within = false }}{{ end }}
{{- if not (hasKey $inner.selector $key) }}{{ $within = false }}{{ end }}
{{- end }}
{{- if $within }}
{{- include "accelbind.problem" (list $found (printf "the nodeSelector of pool %s also selects the nodes of pool %s: %s" $outer $inner.name $fix)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
