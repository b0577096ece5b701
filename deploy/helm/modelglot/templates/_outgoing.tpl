{{/*
What the gateway connects to, as its configuration says: JSON of {endpoints, srv, unreadable}, as `modelglot.facts` has them.
Takes the configuration.
*/}}
{{- define "modelglot.outgoing" -}}
{{- $endpoints := list -}}
{{- $srv := list -}}
{{- $unreadable := list -}}
{{- range $name, $given := .backends | default dict -}}
  {{- $backend := $given | default dict -}}
  {{- $what := printf "backend '%s'" $name -}}
  {{- range $backend.endpoints -}}
  {{- $address := . -}}
  {{- if kindIs "map" . -}}
  {{- $address = get . "address" -}}
  {{- end -}}
  {{- with $address -}}
  {{- $endpoints = append $endpoints (dict "what" $what "endpoint" (toString .)) -}}
  {{- end -}}
  {{- end -}}
  {{- $discovery := $backend.discovery | default dict -}}
  {{- with get $discovery "srv" -}}
  {{- $srv = append $srv (dict "what" (printf "%s: discovery.srv" $what) "name" (toString .)) -}}
  {{- end -}}
  {{- range $way := list "files" "register" -}}
  {{- if get $discovery $way -}}
  {{- $unreadable = append $unreadable (printf "%s: discovery.%s" $what $way) -}}
  {{- end -}}
  {{- end -}}
{{- end -}}
{{- with (.tracing).otlp -}}
{{- $endpoints = append $endpoints (dict "what" "tracing.otlp" "endpoint" .) -}}
{{- end -}}
{{- $payloads := ((.log).payloads).to | default "" | toString -}}
{{- if and $payloads (not (hasPrefix "/" $payloads)) -}}
{{- $endpoints = append $endpoints (dict "what" "log.payloads.to" "endpoint" $payloads) -}}
{{- end -}}
{{- $issuers := (.auth).jwt | default list -}}
{{- range kindIs "map" $issuers | ternary (list $issuers) $issuers -}}
  {{- $keys := .jwks | default .issuer | default "/" | toString -}}
  {{- if not (hasPrefix "/" $keys) -}}
  {{- $endpoints = append $endpoints (dict "what" "auth.jwt" "endpoint" $keys) -}}
  {{- end -}}
{{- end -}}
{{- range include "modelglot.redis" (dict "key" "" "value" .) | fromJsonArray | uniq -}}
{{- $endpoints = append $endpoints (dict "what" "redis" "endpoint" .) -}}
{{- end -}}
{{- dict "endpoints" $endpoints "srv" $srv "unreadable" $unreadable | toJson -}}
{{- end -}}

{{/* The URLs of `redis: URL` and `redis: {url: URL}` at any depth, as a JSON list. Takes {key, value}. */}}
{{- define "modelglot.redis" -}}
{{- $found := list -}}
{{- if and (eq .key "redis") (kindIs "string" .value) -}}
{{- $found = list .value -}}
{{- else if and (eq .key "redis") (kindIs "map" .value) -}}
{{- $found = list (.value.url | default "" | toString) | compact -}}
{{- else if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- $found = concat $found (include "modelglot.redis" (dict "key" $key "value" $value) | fromJsonArray) -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range .value -}}
{{- $found = concat $found (include "modelglot.redis" (dict "key" "" "value" .) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}
