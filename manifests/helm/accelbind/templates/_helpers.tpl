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
