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

{{/*
The labels by which Services, routes and policies find the objects of a component: `gateway`, `test`, `metrics`, `scaler`,
`admin` or `demo-...`. Takes {root, component}.
*/}}
{{- define "modelglot.identity" -}}
app.kubernetes.io/name: {{ include "modelglot.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "modelglot.selectorLabels" -}}
{{ include "modelglot.identity" (dict "root" . "component" "gateway") }}
{{- end -}}

{{/* Labels that say where an object comes from. */}}
{{- define "modelglot.originLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: modelglot
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/*
All labels of an object, each key once: its identity, its own (`labels`, a map from the values, called `what` there), those of
`commonLabels`, its origin. The first of these that has a key counts, and nobody else has those of the identity. Takes {root,
component, labels, what}.
*/}}
{{- define "modelglot.labels" -}}
{{- $identity := include "modelglot.identity" . | fromYaml -}}
{{- $common := .root.Values.commonLabels -}}
{{- $given := dict (.what | default "labels") (.labels | default dict) "commonLabels" $common -}}
{{- range $what, $labels := $given -}}
{{- range $key, $_ := $labels -}}
{{- if hasKey $identity $key -}}
{{- fail (printf "%s: the label %s is the chart's: Services, policies and monitors find objects by it" $what $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- merge (dict) $identity (.labels | default dict) $common (include "modelglot.originLabels" .root | fromYaml) | toYaml -}}
{{- end -}}

{{/*
The metadata of an object. Takes {root}, and if wanted {suffix} of its name, its {component} (the default is `gateway`),
{annotations} and {labels, what} as `modelglot.labels` does.
*/}}
{{- define "modelglot.metadata" -}}
{{- $labels := include "modelglot.labels" (merge (dict "component" (.component | default "gateway")) .) | fromYaml -}}
{{- $metadata := dict "name" (printf "%s%s" (include "modelglot.fullname" .root) (.suffix | default "")) "namespace" .root.Release.Namespace "labels" $labels -}}
{{- with .annotations -}}
{{- $_ := set $metadata "annotations" . -}}
{{- end -}}
metadata:
  {{- toYaml $metadata | nindent 2 }}
{{- end -}}

{{- define "modelglot.serviceAccountName" -}}
{{- if (.Values.serviceAccount).create -}}
{{- default (include "modelglot.fullname" .) (.Values.serviceAccount).name -}}
{{- else -}}
{{- default "default" (.Values.serviceAccount).name -}}
{{- end -}}
{{- end -}}

{{- define "modelglot.configMapName" -}}
{{- default (include "modelglot.fullname" .) (.Values.existingConfigMap).name -}}
{{- end -}}

{{- define "modelglot.configMapKey" -}}
{{- if (.Values.existingConfigMap).name -}}{{- .Values.existingConfigMap.key | default "gateway.yaml" -}}{{- else -}}gateway.yaml{{- end -}}
{{- end -}}

{{- define "modelglot.image" -}}
{{- if not (.Values.image).repository -}}
{{- fail "image.repository: name the repository of the gateway's image, such as modelglot" -}}
{{- end -}}
{{- $registry := (.Values.global).imageRegistry | default .Values.image.registry | default "" -}}
{{- $repository := ternary (printf "%s/%s" (trimSuffix "/" $registry) .Values.image.repository) .Values.image.repository (ne $registry "") -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The Secrets to pull images with, those of all charts first, as a line of a pod's spec; without any nothing. */}}
{{- define "modelglot.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat ((.Values.global).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The name in the certificate of listeners by which the chart's own clients check it. */}}
{{- define "modelglot.tlsName" -}}
{{- if include "modelglot.hasPublicNames" . -}}
{{- first .Values.tls.certManager.dnsNames | replace "*" (include "modelglot.fullname" .) -}}
{{- else -}}
{{- printf "%s.%s.svc" (include "modelglot.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- end -}}

{{/*
Whether the certificate has no names of the Service, as those of ACME issuers and other public CAs; then its Secret has no `ca.crt`
either, and everybody trusts the CA. Empty if not.
*/}}
{{- define "modelglot.hasPublicNames" -}}
{{- $tls := .Values.tls | default dict -}}
{{- if and (not $tls.existingSecret) ($tls.certManager).enabled (not $tls.certManager.serviceNames) $tls.certManager.dnsNames -}}
true
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate of listeners; empty without one. */}}
{{- define "modelglot.tlsSecret" -}}
{{- if (.Values.tls).existingSecret -}}
{{- (.Values.tls).existingSecret -}}
{{- else if ((.Values.tls).certManager).enabled -}}
{{- printf "%s-tls" (include "modelglot.fullname" .) -}}
{{- end -}}
{{- end -}}
