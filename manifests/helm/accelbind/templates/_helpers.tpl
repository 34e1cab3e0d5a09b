{{/* An image as repository:tag or repository@digest. Takes the image's values and the context. */}}
{{- define "accelbind.image" -}}
{{- $image := index . 0 }}{{ $context := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $context.Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* What all pods have in common. */}}
{{- define "accelbind.pod" -}}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "accelbind.pullPolicy" -}}
{{- with .Values.images.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{/* Where the webhook and the certificates' process run, and as which user. */}}
{{- define "accelbind.criticalPod" -}}
{{ include "accelbind.pod" . }}
priorityClassName: system-cluster-critical
nodeSelector:
  kubernetes.io/os: linux
tolerations:
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
    effect: NoSchedule
  - key: CriticalAddonsOnly
    operator: Exists
{{- end }}

{{- define "accelbind.restrictedContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* The probes of a process: /healthz and /readyz on its port for metrics. */}}
{{- define "accelbind.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: {{ .readyPeriod }}
  timeoutSeconds: 5
  failureThreshold: {{ .readyFailures }}
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: {{ .liveTimeout }}
  failureThreshold: 3
{{- end }}

{{/* Fails if every node of the second pool is in the first one too. */}}
{{- define "accelbind.apart" -}}
{{- $outer := index . 0 }}{{ $inner := index . 1 }}{{ $within := true -}}
{{- range $key, $value := $outer.selector }}
{{- if not (and (hasKey $inner.selector $key) (eq (get $inner.selector $key) $value)) }}{{ $within = false }}{{ end }}
{{- end }}
{{- if $within }}
{{- $fix := "give both a label with different values, such as example.com/pool: a and example.com/pool: b" }}
{{- fail (printf "the nodeSelector of pool %s also selects the nodes of pool %s: %s" $outer.name $inner.name $fix) }}
{{- end }}
{{- end }}

{{/* Variables that values add to a container. Takes the values' path, the variables, and the names not to use. */}}
{{- define "accelbind.env" -}}
{{- $path := index . 0 }}{{ $names := index . 2 -}}
{{- with index . 1 }}
{{- range . }}
{{- if has .name $names }}{{ fail (printf "%s: the chart sets %s itself: use its other values" $path .name) }}{{ end }}
{{- end }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/*
The objects of a file of the kustomization, in the release's namespace and with our label.
Takes the file's path below files/, the context, and what to merge into each object.
*/}}
{{- define "accelbind.file" -}}
{{- $path := index . 0 }}{{ $context := index . 1 }}{{ $more := index . 2 }}
{{- $text := $context.Files.Get (printf "files/%s" $path) | required (printf "the chart lacks files/%s: package it from a checkout" $path) }}
{{- range $document := splitList "\n---\n" ($text | replace "accelbind-system" $context.Release.Namespace) }}
---
{{ $object := fromYaml $document }}
{{- $ours := dict "metadata" (dict "labels" (dict "app.kubernetes.io/part-of" "accelbind")) }}
{{- toYaml (mustMergeOverwrite $object $ours (deepCopy $more)) }}
{{- end }}
{{- end }}
