{{/*
What `helm test` sends, as a JSON list of {name, file, protocol, address, model, inputs}: each request over each protocol of each
listener. Left out are protocols with a prefix, which `gateway call` does not know, and for MIP, whose messages name no model,
listeners of another model. UM-Bridge has no names of inputs: `gateway call` knows them as input0, input1 and so on.
*/}}
{{- define "modelglot.testCalls" -}}
{{- $facts := include "modelglot.facts" . | fromJson -}}
{{- $requests := .Values.test.requests -}}
{{- if and (not $requests) .Values.demo.enabled -}}
{{- $requests = include "modelglot.demoRequests" . | fromYamlArray -}}
{{- end -}}
{{- $calls := list -}}
{{- range $number, $request := $requests -}}
{{- range $listener := $facts.listeners -}}
{{- range $protocol := $listener.protocols -}}
{{- $asked := or (not $request.protocols) (has $protocol $request.protocols) -}}
{{- $prefixed := hasKey ($listener.prefix | default dict) $protocol -}}
{{- $otherModel := and (eq $protocol "mip") (ne ($listener.model | default "" | toString) $request.model) -}}
{{- if and $asked (not $prefixed) (not $otherModel) -}}
{{- $host := printf "%s:%d" (include "modelglot.fullname" $) (get $.Values.service.ports $listener.name | default $listener.port | int) -}}
{{- $address := ternary (printf "http://%s" $host) $host (eq (include "modelglot.transport" (dict "listener" $listener.name "protocols" (list $protocol))) "http") -}}
{{- $file := printf "%d.json" $number -}}
{{- $inputs := $request.inputs -}}
{{- if eq $protocol "umbridge" -}}
{{- $file = printf "%d-umbridge.json" $number -}}
{{- $inputs = list -}}
{{- range $position, $input := $request.inputs -}}
{{- $inputs = append $inputs (merge (dict "name" (printf "input%d" $position)) $input) -}}
{{- end -}}
{{- end -}}
{{- $calls = append $calls (dict "name" (printf "%s-%s-%d" $listener.portName $protocol $number) "file" $file
     "protocol" $protocol "address" $address "model" $request.model "inputs" $inputs) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $calls | toJson -}}
{{- end -}}
