{{- define "accelbind.problem" -}}
{{- $found := index . 0 }}{{ $_ := set $found "problems" (append $found.problems (index . 1)) }}
{{- end }}

{{/* The keys of each map of values.yaml; `values` is the whole, `pool` one of the pools. */}}
{{- define "accelbind.knownKeys" -}}
values: [bitstreams, certificates, commonLabels, crds, domains, global, images, kubelet, monitoring, namespace, networkPolicies, nodeFeatureRule, openshift, pools, webhook]
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
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $flags := index . 3 }}
{{- range (index . 2).args }}
{{- $flag := splitList "=" . | first | replace "--no-" "--" }}
{{- if hasKey $flags $flag }}
{{- include "accelbind.problem" (list $found (printf "%s.args has %s: use the value %s in its place" $path . (get $flags $flag))) }}
{{- end }}
{{- end }}
{{- range (index . 2).env }}
{{- $flag := printf "--%s" (.name | trimPrefix "ACCELBIND_" | lower | replace "_" "-") }}
{{- if hasKey $flags $flag }}
{{- include "accelbind.problem" (list $found (printf "%s.env has %s: use the value %s in its place" $path .name (get $flags $flag))) }}
{{- else if has .name (list "NODE_NAME" "MALLOC_MMAP_THRESHOLD_" "ACCELBIND_ROOT" "ACCELBIND_HOST_ROOT" "ACCELBIND_CLEAR_ERRORS" "ACCELBIND_LOG_FORMAT") }}
{{- include "accelbind.problem" (list $found (printf "%s.env has %s, which the chart sets itself: remove it, or use a flag in %s.args" $path .name $path)) }}
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
{{- range $given.extraVolumes }}
{{- if has .name (list "bitstreams" "cdi" "dev" "device-plugins" "hook" "pod-logs" "pod-resources" "state" "sys" "tls") }}
{{- include "accelbind.problem" (list $found (printf "%s.extraVolumes has %s, a name that the chart uses itself: rename the volume" $path .name)) }}
{{- end }}
{{- end }}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/component" }}
{{- if hasKey ($given.podLabels | default dict) . }}
{{- include "accelbind.problem" (list $found (printf "%s.podLabels has %s, by which the chart selects the pods: remove it" $path .)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes what was found and the pools. */}}
{{- define "accelbind.checkPools" -}}
{{- $found := index . 0 }}{{ $earlier := list }}
{{- $flags := dict "--log-level" "logLevel" "--mode" "mode" "--units" "units" "--enforce-mappings" "enforceMappings" "--programming" "programming" "--hook-path" "programming" "--cdi" "cdi" "--cdi-dir" "cdi" }}
{{- range $at, $given := index . 1 }}
{{- $path := printf "pools[%d]" $at }}
{{- include "accelbind.arguments" (list $found $path $given $flags) }}
{{- include "accelbind.workload" (list $found $path $given) }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$" $given.name) }}
{{- include "accelbind.problem" (list $found (printf "%s.name %q is not a name: use at most 32 lower-case letters, digits and -" $path $given.name)) }}
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
