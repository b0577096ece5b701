{{/*
What the gateway connects to, as its configuration says: JSON of {endpoints, srv, unreadable}, as `modelglot.facts` has them.
Takes the configuration.
*/}}
{{- define "modelglot.outgoing" -}}
{{- $endpoints := list -}}
{{- $srv := list -}}
{{- $unreadable := list -}}
{{- range $name, $backend := .backends | default dict -}}
  {{- $what := printf "backend '%s'" $name -}}
  {{- range $backend.endpoints -}}
  {{- $address := . -}}
  {{- if kindIs "map" . -}}
  {{- $address = get . "address" -}}
  {{- end -}}
  {{- $endpoints = append $endpoints (dict "what" $what "endpoint" (toString $address)) -}}
  {{- end -}}
  {{- $discovery := $backend.discovery | default dict -}}
  {{- with get $discovery "srv" -}}
  {{- $srv = append $srv (dict "what" (printf "%s: discovery.srv" $what) "name" (toString .)) -}}
  {{- end -}}
  {{- range $way := list "files" "register" -}}
  {{- if hasKey $discovery $way -}}
  {{- $unreadable = append $unreadable (printf "%s: discovery.%s" $what $way) -}}
  {{- end -}}
  {{- end -}}
{{- end -}}
{{- with dig "tracing" "otlp" "" . -}}
{{- $endpoints = append $endpoints (dict "what" "tracing.otlp" "endpoint" .) -}}
{{- end -}}
{{- $payloads := get (dig "log" "payloads" dict . | default dict) "to" | toString -}}
{{- if and $payloads (not (hasPrefix "/" $payloads)) -}}
{{- $endpoints = append $endpoints (dict "what" "log.payloads.to" "endpoint" $payloads) -}}
{{- end -}}
{{- $issuers := dig "auth" "jwt" list . | default list -}}
{{- range kindIs "map" $issuers | ternary (list $issuers) $issuers -}}
  {{- $keys := get . "jwks" | default (get . "issuer") | toString -}}
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
{{- $found = list (get .value "url" | toString) -}}
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
