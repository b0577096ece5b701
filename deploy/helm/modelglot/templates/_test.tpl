{{/*
What `helm test` sends, as a JSON list of {name, file, protocol, address, model, inputs, tls, auth}: each request over each protocol
of each listener; auth: with the key, which MIP's messages have no place for. Left out are protocols with a prefix, which `gateway call` does not know, and for MIP, whose messages name no model,
listeners of another model. UM-Bridge has no names of inputs: `gateway call` knows them as input0, input1 and so on.
*/}}
{{- define "modelglot.testCalls" -}}
{{- $facts := include "modelglot.facts" . | fromJson -}}
{{- $requests := (.Values.test).requests -}}
{{- if and (not $requests) (.Values.demo).enabled -}}
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
{{- $host := printf "%s:%d" (include "modelglot.fullname" $) (int $listener.servicePort) -}}
{{- $tls := $listener.tls | default false -}}
{{- $address := printf "%s%s://%s" $protocol (ternary "+tls" "" $tls) $host -}}
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
     "protocol" $protocol "address" $address "model" $request.model "inputs" $inputs
     "tls" $tls "auth" (and ($listener.auth | default false) (ne $protocol "mip"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $calls | toJson -}}
{{- end -}}

{{/*
The script of `helm test`: every call, and then the names of those that failed. Each begins with its name, so that the log tells
which reply is whose. Takes {root, calls}.
*/}}
{{- define "modelglot.testScript" -}}
{{- $tls := (.root.Values.test).tls | default dict -}}
{{- $serverName := $tls.serverName | default (include "modelglot.tlsName" .root) -}}
failed=
check() {
  name=$1; shift
  echo "$name:"
  gateway call "$@" || failed="$failed $name"
}
{{- if include "modelglot.testCa" .root }}
# A Secret without ca.crt has a certificate of a CA that everybody trusts.
ca=; [ ! -f /ca/ca.crt ] || ca=--ca=/ca/ca.crt
{{- end }}
{{- range .calls }}
check {{ .name }} {{ .address }}
{{- printf " --model='%s'" (replace "'" "'\\''" .model) }}
{{- if .tls }} --server-name={{ $serverName }}
{{- if include "modelglot.testCa" $.root }} $ca{{ end }}
{{- if $tls.clientSecret }} --certificate=/client/tls.crt --certificate-key=/client/tls.key{{ end }}
{{- end }}
{{- if and .auth (($.root.Values.test).keySecret).name }} --key="$KEY"{{ end }} /requests/{{ .file }}
{{- end }}
[ -z "$failed" ] || { echo "no answer:$failed" >&2; exit 1; }
{{- end -}}

{{/* The Secret whose ca.crt has signed the certificates of listeners; empty if the chart knows none. */}}
{{- define "modelglot.testCa" -}}
{{- ((.Values.test).tls).caSecret | default (include "modelglot.tlsSecret" .) -}}
{{- end -}}
