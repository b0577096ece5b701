{{/*
The Deployment's number of pods; nothing where an autoscaler counts them and there are none yet, or where the values have no number. With an autoscaler it is the number
that runs: Helm would take a field that a release no longer has for its default, one pod, until the autoscaler looks again. Takes
{values, live}: the Deployment in the cluster, or an empty map.
*/}}
{{- define "modelglot.replicas" -}}
{{- if not (.values.autoscaling).enabled -}}
{{- if not (kindIs "invalid" .values.replicaCount) -}}{{- int .values.replicaCount -}}{{- end -}}
{{- else if hasKey (.live.spec | default dict) "replicas" -}}
{{- int .live.spec.replicas -}}
{{- end -}}
{{- end -}}

{{/*
The paths of `rate_limit` and `placement` without `redis` in the configuration, as a JSON list: each replica counts requests, and
chooses the servers of models, by itself. Takes {value, path}.
*/}}
{{- define "modelglot.withoutRedis" -}}
{{- $found := list -}}
{{- if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- $path := printf "%s.%s" $.path $key -}}
{{- if and (has $key (list "rate_limit" "placement")) (kindIs "map" $value) (not (get $value "redis")) -}}
{{- $found = append $found $path -}}
{{- else -}}
{{- $found = concat $found (include "modelglot.withoutRedis" (dict "value" $value "path" $path) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range $index, $value := .value -}}
{{- $found = concat $found (include "modelglot.withoutRedis" (dict "value" $value "path" (printf "%s[%d]" $.path $index)) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}
