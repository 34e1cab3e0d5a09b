{{- define "accelbind.problem" -}}
{{- $found := index . 0 }}{{ $_ := set $found "problems" (append $found.problems (index . 1)) }}
{{- end }}

{{- define "accelbind.fail" -}}
{{- if .problems }}
{{- fail (printf "change these values:\n- %s" (join "\n- " .problems)) }}
{{- end }}
{{- end }}

{{/*
Compares a value with what it may be (types.yaml). Null counts as absent: Helm leaves it in lists.
Takes what was found, the value's path, the value, and its type.
*/}}
{{- define "accelbind.compare" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $value := index . 2 }}{{ $type := index . 3 }}
{{- /* Helm 3.18.0 reads numbers as texts of a type of their own. */}}
{{- $is := typeIs "json.Number" $value | ternary "float64" (kindOf $value) }}{{ $wanted := "" }}
{{- if kindIs "map" $type }}
{{- $known := list }}{{ $others := get $type "*" }}{{ $form := "" }}
{{- range $key, $inner := $type }}
{{- if hasPrefix "<" $key }}{{ $form = trimAll "<>" $key }}{{ $others = $inner }}
{{- else if ne $key "*" }}{{ $known = append $known (trimSuffix "!" $key) }}{{ end }}
{{- end }}
{{- if ne $is "map" }}
{{- $wanted = not (empty $known) | ternary (printf "a map with %s" (join ", " $known)) "a map, such as {a: b}" }}
{{- else }}
{{- range $key, $inner := $value }}
{{- $of := get $type $key | default (get $type (print $key "!")) | default $others }}
{{- if not $of }}
{{- include "accelbind.problem" (list $found (printf "%s is not a value of this chart: use one of %s" (printf "%s.%s" $path $key | trimPrefix ".") (join ", " $known))) }}
{{- else if kindIs "invalid" $inner }}{{ $_ := unset $value $key }}
{{- else if and $form (not (regexMatch (get $found.forms $form).like $key)) }}
{{- include "accelbind.problem" (list $found (printf "%s: %q is not %s" $path $key (get $found.forms $form).says)) }}
{{- else }}
{{- include "accelbind.compare" (list $found (printf "%s.%s" $path $key | trimPrefix ".") $inner $of) }}
{{- end }}
{{- end }}
{{- range keys $type | sortAlpha }}
{{- $key := trimSuffix "!" . }}
{{- if and (hasSuffix "!" .) (not (hasKey $value $key)) }}
{{- include "accelbind.problem" (list $found (printf "%s is missing: %s" (printf "%s.%s" $path $key | trimPrefix ".") (contains "[" $path | ternary "set it" "set it, or remove a line with null so that its default applies"))) }}
{{- end }}
{{- end }}
{{- end }}
{{- else if kindIs "slice" $type }}
{{- if eq $is "slice" }}
{{- range $at, $inner := $value }}
{{- include "accelbind.compare" (list $found (printf "%s[%d]" $path $at) $inner (first $type)) }}
{{- end }}
{{- else }}
{{- $wanted = kindIs "map" (first $type) | ternary "a list of maps, such as [{name: a}]" "a list, such as [a, b]" }}
{{- end }}
{{- else if eq $type "map" }}
{{- if ne $is "map" }}{{ $wanted = "a map, such as {a: b}" }}{{ end }}
{{- else if eq $type "text" }}
{{- if ne $is "string" }}{{ $wanted = "a text" }}{{ end }}
{{- else if eq $type "flag" }}
{{- if ne $is "bool" }}{{ $wanted = "true or false, without quotes" }}{{ end }}
{{- else if hasKey $found.forms (trimPrefix "|" $type) }}
{{- $form := get $found.forms (trimPrefix "|" $type) }}
{{- if not (has $is (hasKey $form "number" | ternary (list "string" "float64" "int64" "int") (list "string"))) }}
{{- $wanted = hasKey $form "number" | ternary "a number or a text" "a text" }}
{{- else if not (or (regexMatch $form.like (toString $value)) (and (hasPrefix "|" $type) (eq $value ""))) }}
{{- include "accelbind.problem" (list $found (printf "%s %q is not %s" $path (toString $value) $form.says)) }}
{{- end }}
{{- else if or (eq $type "number") (contains ".." $type) }}
{{- $ends := splitList ".." $type }}{{ $fits := has $is (list "float64" "int64" "int") }}
{{- if $fits }}{{ $fits = eq (float64 $value) (floor $value) }}{{ end }}
{{- if and $fits (contains ".." $type) }}
{{- $fits = and (ge (float64 $value) (float64 (first $ends))) (or (eq (last $ends) "") (le (float64 $value) (float64 (last $ends)))) }}
{{- end }}
{{- if not $fits }}
{{- $wanted = "a whole number" }}
{{- if eq (first $ends) (last $ends) }}{{ $wanted = first $ends }}
{{- else if contains ".." $type }}{{ $wanted = printf "a whole number of at least %s%s" (first $ends) (ne (last $ends) "" | ternary (print " and at most " (last $ends)) "") }}{{ end }}
{{- end }}
{{- else if contains "|" $type }}
{{- if not (and (eq $is "string") (has $value (splitList "|" $type))) }}{{ $wanted = print "one of " (splitList "|" $type | compact | join ", ") }}{{ end }}
{{- end }}
{{- if $wanted }}
{{- $shown := dict "map" "a map" "slice" "a list" "invalid" "null" "string" (printf "the text %q" $value) "bool" (toString $value) }}
{{- $advice := and (eq $wanted "a text") (not (has $is (list "map" "slice" "invalid"))) | ternary ": put it into quotes" "" }}
{{- include "accelbind.problem" (list $found (printf "%s must be %s, not %s%s" $path $wanted (get $shown $is | default (print "the number " $value)) $advice)) }}
{{- end }}
{{- end }}

{{/* Takes what was found, the path of values with `args`, these, which value each flag has, and the command with its flags. */}}
{{- define "accelbind.arguments" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $given := index . 2 }}{{ $flags := index . 3 }}
{{- $command := index . 4 }}{{ $known := index . 5 }}
{{- $fixed := list "--ca-secret" "--host" "--host-root" "--kubelet-dir" "--metrics-host" "--metrics-port" "--namespace" "--node-name" "--pod-logs-dir" "--port" "--root" "--service" "--state-dir" "--tls-secret" "--webhook-config" }}
{{- $set := list "ACCELBIND_CLEAR_ERRORS" "ACCELBIND_LOG_FORMAT" "MALLOC_MMAP_THRESHOLD_" "NODE_NAME" }}
{{- $said := list }}{{ $before := "" }}
{{- range $given.args }}
{{- if not (or (hasPrefix "-" .) (regexMatch "^--[^=]+$" $before)) }}
{{- include "accelbind.problem" (list $found (printf "%s.args has %q, which is not a flag: use --name=value" $path .)) }}
{{- end }}
{{- $before = . }}
{{- $said = append $said (list "args" . (splitList "=" . | first | replace "--no-" "--") (hasPrefix "-" .)) }}
{{- end }}
{{- range $given.env }}
{{- $said = append $said (list "env" .name (printf "--%s" (.name | trimPrefix "ACCELBIND_" | lower | replace "_" "-")) (hasPrefix "ACCELBIND_" .name)) }}
{{- end }}
{{- range $said }}
{{- $is := printf "%s.%s has %s" $path (index . 0) (index . 1) }}{{ $flag := index . 2 }}
{{- if hasKey $flags $flag }}
{{- include "accelbind.problem" (list $found (printf "%s: use the value %s in its place" $is (get $flags $flag))) }}
{{- else if has (index . 1) $set }}
{{- include "accelbind.problem" (list $found (printf "%s, which the chart sets itself: remove it, or use a flag in %s.args" $is $path)) }}
{{- else if has $flag $fixed }}
{{- include "accelbind.problem" (list $found (printf "%s: remove it, since the chart's ports, mounts and rights are for its own value" $is)) }}
{{- else if and (index . 3) (not (has $flag $known)) }}
{{- include "accelbind.problem" (list $found (printf "%s, which accelbind %s does not know: see accelbind %s --help" $is $command $command)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A quantity of Kubernetes as a number. */}}
{{- define "accelbind.amount" -}}
{{- $suffix := regexFind "([KMGTPE]i|[mkMGTPE])$" . }}
{{- $factors := dict "" 1.0 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 }}
{{- mulf (trimSuffix $suffix . | float64) (get $factors $suffix) }}
{{- end }}

{{/*
Whether API servers trust the webhook throughout the upgrade, as far as the cluster shows: `helm template`
sees none. Helm changes the Deployment before the webhook configurations, and deletes fields that it no
longer renders. Takes what was found and the context.
*/}}
{{- define "accelbind.checkTrust" -}}
{{- $found := index . 0 }}{{ $context := index . 1 }}{{ $certificates := $context.Values.certificates }}
{{- $deployment := lookup "apps/v1" "Deployment" $context.Release.Namespace "accelbind-webhook" }}
{{- $configuration := lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "accelbind" }}
{{- if and $deployment $configuration }}
{{- $serving := include "accelbind.servingSecret" $context | trim }}{{ $mounted := "" }}
{{- range $deployment.spec.template.spec.volumes }}
{{- if eq .name "tls" }}{{ $mounted = dig "secret" "secretName" "" . }}{{ end }}
{{- end }}
{{- $bundle := dig "clientConfig" "caBundle" "" (first $configuration.webhooks) | b64dec }}
{{- $trusted := eq $serving $mounted }}
{{- if and (eq $certificates.source "existingSecret") (not $trusted) }}
{{- $trusted = eq $bundle $certificates.caBundle }}
{{- else if and (eq $certificates.source "own") (not $trusted) }}
{{- $secret := lookup "v1" "Secret" $context.Release.Namespace $serving }}
{{- $authority := dig "data" "ca.crt" "" $secret | b64dec | trim }}
{{- $trusted = and $authority (contains $authority $bundle) }}
{{- end }}
{{- range $annotation, $of := dict "accelbind.dev/ca-bundle" "existingSecret" "cert-manager.io/inject-ca-from" "cert-manager" }}
{{- if and (ne $certificates.source $of) (hasKey ($configuration.metadata.annotations | default dict) $annotation) }}
{{- $trusted = false }}
{{- end }}
{{- end }}
{{- /* An upgrade that applies on the client's side deletes the bundle that Helm's last one had, whoever wrote it since. */}}
{{- $rendered := hasKey ($deployment.metadata.annotations | default dict) "accelbind.dev/ca-bundle" }}
{{- if and $context.Release.IsUpgrade $rendered (ne $certificates.source "existingSecret") }}
{{- include "accelbind.problem" (list $found (printf "certificates.source %s: Helm could delete the caBundle that its last upgrade set: let Helm forget the release first (docs/helm.md, \"Let Helm forget the release\")" $certificates.source)) }}
{{- end }}
{{- if not $trusted }}
{{- include "accelbind.problem" (list $found (printf "certificates.source %s with Secret %s: API servers would not trust the webhook during this upgrade, which has Secret %s now: follow docs/helm.md, \"Change the source of certificates\"" $certificates.source $serving $mounted)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What all workloads have. Takes what was found, the path of their values, and these. */}}
{{- define "accelbind.workload" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $given := index . 2 }}
{{- $limits := dig "limits" dict ($given.resources | default dict) | default dict }}
{{- range $name, $amount := dig "requests" dict ($given.resources | default dict) | default dict }}
{{- if hasKey $limits $name }}
{{- $limit := get $limits $name | toString }}
{{- if gt (include "accelbind.amount" (toString $amount) | float64) (include "accelbind.amount" $limit | float64) }}
{{- include "accelbind.problem" (list $found (printf "%s.resources.requests.%s %s is more than its limit %s: raise the limit, or request less" $path $name (toString $amount) $limit)) }}
{{- end }}
{{- end }}
{{- end }}
{{- include "accelbind.volumes" (list $found $path $given) }}
{{- $names := list }}
{{- range $given.env }}
{{- if and (hasKey . "value") .valueFrom }}
{{- include "accelbind.problem" (list $found (printf "%s.env has %s with value and valueFrom: remove one of them" $path .name)) }}
{{- else if has .name $names }}
{{- include "accelbind.problem" (list $found (printf "%s.env has %s twice: remove one of them" $path .name)) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- range $at, $each := $given.tolerations }}
{{- $is := printf "%s.tolerations[%d]" $path $at }}
{{- if and (eq (.operator | default "Equal") "Equal") (not .key) }}
{{- include "accelbind.problem" (list $found (printf "%s has no key: name a taint, or use {operator: Exists} for all taints" $is)) }}
{{- else if and (eq (.operator | default "") "Exists") .value }}
{{- include "accelbind.problem" (list $found (printf "%s.value is for operator Equal: remove the value, or operator Exists" $is)) }}
{{- else if and (hasKey . "tolerationSeconds") (ne (.effect | default "") "NoExecute") }}
{{- include "accelbind.problem" (list $found (printf "%s.tolerationSeconds is for effect NoExecute: remove it, or set this effect" $is)) }}
{{- end }}
{{- end }}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/component" }}
{{- if hasKey ($given.podLabels | default dict) . }}
{{- include "accelbind.problem" (list $found (printf "%s.podLabels has %s, by which the chart selects the pods: remove it" $path .)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes what was found, the path of values with volumes, and these. */}}
{{- define "accelbind.volumes" -}}
{{- $found := index . 0 }}{{ $path := index . 1 }}{{ $given := index . 2 }}
{{- $names := list }}{{ $taken := list }}
{{- range $given.extraVolumes }}
{{- if ne (len .) 2 }}
{{- include "accelbind.problem" (list $found (printf "%s.extraVolumes has %s with %s: use its name and one source, such as emptyDir: {}" $path .name (keys . | sortAlpha | join ", "))) }}
{{- else if has .name (list "bitstreams" "cdi" "dev" "device-plugins" "device-types" "hook" "plugins" "plugins-registry" "pod-logs" "pod-resources" "state" "sys" "tls") }}
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
{{- $at := clean .mountPath }}{{ $is := printf "%s.extraVolumeMounts has %s at" $path .name }}
{{- $kubelet := list }}
{{- range list "device-plugins" "plugins/accelbind.dev" "plugins_registry" "pod-resources" }}
{{- $kubelet = append $kubelet (printf "%s/%s" $found.kubelet .) }}
{{- end }}
{{- range $ours := concat $kubelet (list "/etc/accelbind/tls" "/etc/accelbind/device-types" "/host/dev" "/host/sys" "/opt/accelbind" "/run/accelbind" "/srv/intel.com/fpga" "/var/lib/kubelet/device-plugins" "/var/lib/kubelet/plugins/accelbind.dev" "/var/lib/kubelet/plugins_registry" "/var/lib/kubelet/pod-resources" "/var/log/pods" "/var/run/cdi" "/var/run/secrets/kubernetes.io/serviceaccount") }}
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

{{/* Takes what was found, the pools, and the flags of each command. */}}
{{- define "accelbind.checkPools" -}}
{{- $found := index . 0 }}{{ $known := index . 2 }}{{ $earlier := list }}
{{- $flags := dict "--log-level" "logLevel" "--api" "driver" "--mode" "mode" "--units" "units" "--enforce-mappings" "enforceMappings" "--programming" "programming" "--hook-path" "programming" "--cdi" "cdi" "--cdi-dir" "cdi" "--device-types" "deviceTypes" "--resource-domain" "deviceTypes.domains" "--allow-nodes" "deviceTypes.allowNodes" }}
{{- range $at, $given := index . 1 }}
{{- $path := printf "pools[%d]" $at }}
{{- include "accelbind.arguments" (list $found $path $given $flags "plugin" $known.plugin) }}
{{- include "accelbind.workload" (list $found $path $given) }}
{{- if and (hasKey $given "nodeSelector") (not $given.nodeSelector) }}
{{- include "accelbind.problem" (list $found (printf "%s.nodeSelector is empty: name a label, or remove it for accelbind.dev/plugin: \"true\"" $path)) }}
{{- end }}
{{- $mode := $given.mode | default "af" }}{{ $programming := $given.programming | default "" }}
{{- if eq ($given.driver | default "plugin") "dra" }}
{{- range list "mode" "units" "cdi" }}
{{- if hasKey $given . }}
{{- include "accelbind.problem" (list $found (printf "%s.%s is for device plugins, and the pool has driver dra: remove one of them" $path .)) }}
{{- end }}
{{- end }}
{{- if semverCompare "<1.36.0-0" $found.kubernetes }}
{{- include "accelbind.problem" (list $found (printf "%s.driver dra needs Kubernetes 1.36 or newer, and this is %s: use driver plugin, or upgrade the cluster (helm template: name its version with --kube-version)" $path $found.kubernetes)) }}
{{- end }}
{{- if has $programming (list "prestart" "oci-hook") }}
{{- include "accelbind.problem" (list $found (printf "%s.programming %s is for device plugins: with driver dra use on-prepare or none" $path $programming)) }}
{{- end }}
{{- else if eq $programming "on-prepare" }}
{{- include "accelbind.problem" (list $found (printf "%s.programming on-prepare needs driver dra: use prestart, or set the pool's driver to dra" $path)) }}
{{- else if and (hasKey $given "units") (ne $mode "units") }}
{{- include "accelbind.problem" (list $found (printf "%s.units is for mode units: remove it, or set the pool's mode to units" $path)) }}
{{- end }}
{{- if and (eq $programming "oci-hook") (ne $mode "region") (ne ($given.driver | default "plugin") "dra") }}
{{- include "accelbind.problem" (list $found (printf "%s.programming oci-hook needs mode region: set the pool's mode to region" $path)) }}
{{- end }}
{{- with $given.updateStrategy }}
{{- if and (eq .type "OnDelete") .rollingUpdate }}
{{- include "accelbind.problem" (list $found (printf "%s.updateStrategy.rollingUpdate is for type RollingUpdate: remove it, or set this type" $path)) }}
{{- end }}
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
