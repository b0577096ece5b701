{{/*
The demo: three servers of bundled models, and the backends and routes that lead to them, as in the gateway's own
config/gateway.yaml.
*/}}

{{- define "modelglot.demoServers" -}}
umbridge: {protocol: umbridge, port: 4242, models: [posterior]}
v2: {protocol: v2-grpc, port: 8001, models: [double, add_sub, classify, count, identity]}
grps: {protocol: grps-rest, port: 7080, models: [upper]}
{{- end -}}

{{- define "modelglot.demoRoutes" -}}
- {match: {model: posterior}, backend: demo-umbridge}
- match: {protocol: umbridge, model: double}
  backend: demo-v2
  signature:
    inputs: [{name: x, datatype: FP64, shape: [-1, 3]}]
    outputs: [{name: "y", datatype: FP64, shape: [-1, 3]}]
- {match: {model: double}, backend: demo-v2}
- {match: {model: add_sub}, backend: demo-v2}
- {match: {model: classify}, backend: demo-v2}
- {match: {model: count}, backend: demo-v2, translate: {stream: collect}}
- {match: {model: identity}, backend: demo-v2}
- match: {model: upper}
  backend: demo-grps
  signature:
    inputs: [{name: text, datatype: BYTES, shape: [-1]}]
    outputs: [{name: upper, datatype: BYTES, shape: [-1]}]
{{- end -}}

{{/* What `helm test` asks of the demo. */}}
{{- define "modelglot.demoRequests" -}}
- model: double
  inputs: [{name: x, datatype: FP64, shape: [1, 3], data: [1, 2, 3]}]
- model: classify
  inputs: [{name: scores, datatype: FP32, shape: [1, 3], data: [1, 5, 2]}]
  protocols: [mip]
{{- end -}}

{{/* The configuration with the demo's backends and routes behind its own. Takes {root, config}. */}}
{{- define "modelglot.withDemo" -}}
{{- $backends := dict -}}
{{- range $name, $server := include "modelglot.demoServers" . | fromYaml -}}
{{- $address := printf "%s-demo-%s:%d" (include "modelglot.fullname" $.root) $name (int $server.port) -}}
{{- $_ := set $backends (printf "demo-%s" $name) (dict "protocol" $server.protocol "endpoints" (list $address)) -}}
{{- end -}}
{{- $spoken := list -}}
{{- range .config.listeners -}}{{- $spoken = concat $spoken .protocols -}}{{- end -}}
{{- $routes := .config.routes | default list -}}
{{- range include "modelglot.demoRoutes" . | fromYamlArray -}}
{{- /* The gateway refuses a route for a protocol that no listener speaks. */ -}}
{{- if has (get .match "protocol" | default (first $spoken)) $spoken -}}
{{- $routes = append $routes . -}}
{{- end -}}
{{- end -}}
{{- merge (dict "routes" $routes "backends" (merge (.config.backends | default dict | deepCopy) $backends)) .config | toJson -}}
{{- end -}}
