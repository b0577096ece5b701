{{/* Names and labels. */}}

{{- define "modelglot.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 46 characters: the longest suffix is `-demo-umbridge` with room to spare. */}}
{{- define "modelglot.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "modelglot.selectorLabels" -}}
app.kubernetes.io/name: {{ include "modelglot.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "modelglot.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: modelglot
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "modelglot.labels" -}}
{{ include "modelglot.selectorLabels" . }}
{{ include "modelglot.commonLabels" . }}
{{- end -}}

{{/* Labels of the pod of `helm test`, which the NetworkPolicy lets in. */}}
{{- define "modelglot.testLabels" -}}
app.kubernetes.io/name: {{ include "modelglot.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end -}}

{{/* Labels of the Service that Prometheus scrapes. */}}
{{- define "modelglot.metricsLabels" -}}
app.kubernetes.io/name: {{ include "modelglot.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: metrics
{{- end -}}

{{/* Labels of one demo server; takes {root, server}. */}}
{{- define "modelglot.demoLabels" -}}
app.kubernetes.io/name: {{ include "modelglot.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: demo-{{ .server }}
{{- end -}}

{{- define "modelglot.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "modelglot.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "modelglot.configMapName" -}}
{{- default (include "modelglot.fullname" .) .Values.existingConfigMap.name -}}
{{- end -}}

{{- define "modelglot.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate of listeners; empty without one. */}}
{{- define "modelglot.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{- .Values.tls.existingSecret -}}
{{- else if .Values.tls.certManager.enabled -}}
{{- printf "%s-tls" (include "modelglot.fullname" .) -}}
{{- end -}}
{{- end -}}
