{{/* An image as repository:tag or repository@digest. Takes the image's values and the context. */}}
{{- define "accelbind.image" -}}
{{- $image := index . 0 }}{{ $context := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $context.Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The Secret that the webhook mounts. Each source has its own, so that a change of source is a rollout. */}}
{{- define "accelbind.servingSecret" -}}
{{- $certificates := .Values.certificates -}}
{{ get (dict "own" "accelbind-webhook-tls" "cert-manager" "accelbind-webhook-cert-manager" "existingSecret" $certificates.existingSecret) $certificates.source }}
{{- end }}

{{/* Not empty if device types are served. */}}
{{- define "accelbind.hasTypes" -}}
{{- if or .Values.deviceTypes.enabled .Values.deviceTypes.own }}yes{{ end }}
{{- end }}

{{/* Not empty if a pool runs the DRA driver. */}}
{{- define "accelbind.hasDra" -}}
{{- range .Values.pools }}{{ if eq (.driver | default "plugin") "dra" }}yes{{ end }}{{ end }}
{{- end }}

{{/* The text of a guard, for all namespaces if the values say so. Takes the context and the text. */}}
{{- define "accelbind.guarded" -}}
{{- $text := index . 1 }}
{{- if (index . 0).Values.webhook.guardAllNamespaces }}
{{- $own := "matchLabels:\\s+accelbind.dev/guard: \"true\"" }}
{{- $text = regexReplaceAll $own $text "matchExpressions: [{key: accelbind.dev/guard, operator: NotIn, values: [\"false\"]}]" }}
{{- end }}
{{- $text }}
{{- end }}

{{/* Name of a pool's DaemonSet. Takes the pool's name. */}}
{{- define "accelbind.poolName" -}}
{{ eq . "default" | ternary "accelbind-plugin" (printf "accelbind-plugin-%s" .) }}
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

{{/* Labels and annotations of pods. Takes the name of their workload, its component, and its values. */}}
{{- define "accelbind.podMetadata" -}}
{{- $given := index . 2 -}}
labels:
  app.kubernetes.io/name: {{ index . 0 }}
  app.kubernetes.io/component: {{ index . 1 }}
  {{- with $given.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with $given.podAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where the webhook and the certificates' process run. Takes the context and their values. */}}
{{- define "accelbind.criticalPod" -}}
{{- $given := index . 1 -}}
{{ include "accelbind.pod" (index . 0) }}
priorityClassName: system-cluster-critical
nodeSelector: {{ toYaml (merge (dict "kubernetes.io/os" "linux") ($given.nodeSelector | default dict)) | nindent 2 }}
{{- with $given.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $given.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
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

{{/* Labels of an object, not of its pods: a new version of the chart must not restart them. Takes the context and the object's name. */}}
{{- define "accelbind.labels" -}}
{{- $context := index . 0 -}}
{{- $labels := dict "app.kubernetes.io/name" "accelbind" "app.kubernetes.io/part-of" "accelbind" }}
{{- $_ := set $labels "app.kubernetes.io/instance" $context.Release.Name }}
{{- $_ := set $labels "app.kubernetes.io/version" $context.Chart.AppVersion }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $context.Release.Service }}
{{- $component := regexFind "^accelbind-(webhook|plugin|certs)" (index . 1) | default "accelbind" }}
{{- $_ := set $labels "app.kubernetes.io/component" $component }}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $context.Chart.Name $context.Chart.Version | replace "+" "_") }}
{{- toYaml (merge $labels ($context.Values.commonLabels | default dict)) }}
{{- end }}

{{/*
The objects of a file that kustomize uses too, in the release's namespace and with our labels.
Takes the file's path, the context, and what to merge into each object.
*/}}
{{- define "accelbind.file" -}}
{{- $path := index . 0 }}{{ $context := index . 1 }}{{ $more := index . 2 }}
{{- $text := $context.Files.Get $path | required (printf "the chart lacks %s" $path) }}
{{- range $document := splitList "\n---\n" ($text | replace "accelbind-system" $context.Release.Namespace) }}
---
{{ $object := fromYaml $document }}
{{- $labels := include "accelbind.labels" (list $context $object.metadata.name) | fromYaml }}
{{- toYaml (mustMergeOverwrite $object (dict "metadata" (dict "labels" $labels)) (deepCopy $more)) }}
{{- end }}
{{- end }}
