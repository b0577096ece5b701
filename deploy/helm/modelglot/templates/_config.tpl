{{/*
What the chart reads of the gateway's configuration, so that nobody writes a port twice.

`gateway.facts` is the only entry: JSON of
  text       what the ConfigMap holds; empty with existingConfigMap
  backends   how many
  listeners  of {name, portName, port, transport, protocols, model, prefix, tls, clientCertificate, auth}, without those on
             unix sockets; clientCertificate: clients must have one; auth: they must identify themselves
  healthPort, healthTls
  scalerPort, scalerTls   of KEDA's external scaler; 0 where it is off, or on loopback
  adminPort, adminTls     of the status API; 0 where it is off, or on loopback
  preStop, grace   seconds
  endpoints  what the gateway connects to, of {what, endpoint}: backends, collector, Redis, issuers
  srv        of {what, name}: DNS names whose SRV records name endpoints
  unreadable where the configuration has endpoints that the chart cannot read
*/}}

{{- define "modelglot.facts" -}}
{{- $facts := dict -}}
{{- if .Values.existingConfigMap.name -}}
{{- $facts = include "modelglot.factsOfExisting" . | fromJson -}}
{{- else -}}
{{- $facts = include "modelglot.factsOfConfig" . | fromJson -}}
{{- end -}}
{{- $delay := $facts.delay | float64 -}}
{{- $timeout := $facts.timeout | float64 -}}
{{- $preStop := ternary (int .Values.preStopSeconds) 0 (eq $delay 0.0) -}}
{{- $_ := set $facts "preStop" $preStop -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- $_ := set $facts "grace" (add $preStop (ceil $delay | int) (ceil $timeout | int) 10) -}}
{{- else -}}
{{- $_ := set $facts "grace" (int .Values.terminationGracePeriodSeconds) -}}
{{- end -}}
{{- $facts | toJson -}}
{{- end -}}

{{- define "modelglot.factsOfExisting" -}}
{{- $existing := .Values.existingConfigMap -}}
{{- if not $existing.listeners -}}
{{- fail "existingConfigMap: list its listeners in existingConfigMap.listeners, such as [{name: http, port: 8080, protocols: [v2-rest]}]: the chart cannot read that ConfigMap" -}}
{{- end -}}
{{- if .Values.demo.enabled -}}
{{- fail "demo.enabled adds backends and routes to `config`; it does not go with existingConfigMap" -}}
{{- end -}}
{{- $listeners := list -}}
{{- range $existing.listeners -}}
{{- $transport := include "modelglot.transport" (dict "listener" .name "protocols" .protocols) -}}
{{- $listeners = append $listeners (merge (dict "transport" $transport) .) -}}
{{- end -}}
{{- dict "text" "" "backends" 1 "listeners" (include "modelglot.namedPorts" (dict "listeners" $listeners) | fromJsonArray) "healthPort" $existing.healthPort "healthTls" $existing.healthTls
     "scalerPort" 0 "scalerTls" false "adminPort" 0 "adminTls" false
     "delay" $existing.drainDelay "timeout" $existing.drainTimeout "endpoints" list "srv" list
     "unreadable" (list (printf "the ConfigMap %s" $existing.name)) | toJson -}}
{{- end -}}

{{- define "modelglot.factsOfConfig" -}}
{{- $config := .Values.config -}}
{{- $text := "" -}}
{{- if kindIs "string" $config -}}
  {{- if .Values.demo.enabled -}}
  {{- fail "demo.enabled adds backends and routes to `config`, which must be a map for that, not a text" -}}
  {{- end -}}
  {{- $text = $config -}}
  {{- $config = fromYaml $text -}}
  {{- if hasKey $config "Error" -}}
  {{- fail (printf "config: the text is no YAML map: %s" (get $config "Error")) -}}
  {{- end -}}
{{- else -}}
  {{- include "modelglot.checkText" (dict "key" "" "value" $config "path" "config") -}}
  {{- if .Values.demo.enabled -}}
  {{- $config = include "modelglot.withDemo" (dict "root" . "config" $config) | fromJson -}}
  {{- end -}}
  {{- $text = toYaml $config -}}
{{- end -}}
{{- if not (get $config "listeners") -}}
{{- fail "config: it has no listeners, such as [{name: http, bind: \"0.0.0.0:8080\", protocols: [v2-rest]}]" -}}
{{- end -}}
{{- if not (dig "health" "bind" "" $config) -}}
{{- fail "config: the probes need the health port: health: {bind: \"0.0.0.0:9091\"}" -}}
{{- end -}}
{{- include "modelglot.checkFiles" (dict "root" . "config" $config) -}}
{{- $listeners := list -}}
{{- range $listener := $config.listeners -}}
  {{- $what := printf "config: listener '%v'" $listener.name -}}
  {{- if not (hasPrefix "unix://" (toString $listener.bind)) -}}
    {{- $port := include "modelglot.port" (dict "what" $what "bind" (toString $listener.bind)) -}}
    {{- $transport := include "modelglot.transport" (dict "listener" $listener.name "protocols" $listener.protocols) -}}
    {{- $listeners = append $listeners (dict "name" (toString $listener.name) "port" (int $port) "transport" $transport
         "protocols" $listener.protocols "model" (get $listener "model") "prefix" (get $listener "prefix") "tls" (hasKey $listener "tls")
         "clientCertificate" (eq (dig "tls" "client" "none" $listener) "required")
         "auth" (and (hasKey $listener "auth") (not (dig "auth" "anonymous" "" $listener)))) -}}
  {{- end -}}
{{- end -}}
{{- $outgoing := include "modelglot.outgoing" $config | fromJson -}}
{{- $scaler := $config.scaler | default dict -}}
{{- $admin := $config.admin | default dict -}}
{{- $drain := $config.drain | default dict -}}
{{- range $key, $value := pick $drain "delay" "timeout" -}}
  {{- if not (regexMatch "^[0-9]*\\.?[0-9]+$" (toString $value)) -}}
  {{- fail (printf "config: drain: %s is %v; the chart computes the grace period of it and wants a number of seconds" $key $value) -}}
  {{- end -}}
{{- end -}}
{{- dict "text" $text "backends" (len ($config.backends | default dict)) "listeners" (include "modelglot.namedPorts" (dict "listeners" $listeners) | fromJsonArray)
     "healthPort" (include "modelglot.port" (dict "what" "config: health" "bind" (toString $config.health.bind)) | int)
     "healthTls" (hasKey $config.health "tls") 
     "scalerPort" (include "modelglot.optionalPort" (dict "what" "config: scaler" "bind" $scaler.bind) | int) "scalerTls" (hasKey $scaler "tls")
     "adminPort" (include "modelglot.optionalPort" (dict "what" "config: admin" "bind" $admin.bind) | int) "adminTls" (hasKey $admin "tls")
     "delay" (get $drain "delay" | default 0) "timeout" (hasKey $drain "timeout" | ternary (get $drain "timeout") 30)
     "endpoints" $outgoing.endpoints "srv" $outgoing.srv "unreadable" $outgoing.unreadable | toJson -}}
{{- end -}}

{{/*
Fails if the configuration names a file in a folder of the chart's that nothing mounts: the gateway would not start. Takes {root, config}.
*/}}
{{- define "modelglot.checkFiles" -}}
{{- $values := .root.Values -}}
{{- $secrets := dict "/tls" (include "modelglot.tlsSecret" .root) "/tls-clients" $values.tls.clientCaSecret "/etc/gateway-keys" $values.keys.existingSecret -}}
{{- $remedies := dict "/tls" "tls.existingSecret or tls.certManager" "/tls-clients" "tls.clientCaSecret" "/etc/gateway-keys" "keys.existingSecret" -}}
{{- $files := list (dig "auth" "keys" "file" "" .config) -}}
{{- range concat .config.listeners (list (.config.health | default dict) (.config.admin | default dict)) -}}
{{- $files = concat $files (values (pick (get . "tls" | default dict) "certificate" "key" "client_ca" "client_crl")) -}}
{{- end -}}
{{- range $file := $files | sortAlpha -}}
  {{- $own := "" -}}
  {{- range $folder := keys $secrets -}}
    {{- if hasPrefix (printf "%s/" $folder) (toString $file) -}}{{- $own = $folder -}}{{- end -}}
  {{- end -}}
  {{- if and $own (not (get $secrets $own)) -}}
    {{- $isMounted := false -}}
    {{- range $values.extraVolumeMounts -}}
      {{- if or (eq .mountPath $file) (hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) $file) -}}{{- $isMounted = true -}}{{- end -}}
    {{- end -}}
    {{- if not $isMounted -}}
    {{- fail (printf "config: nothing mounts %s; set %s, or extraVolumes and extraVolumeMounts" $file (get $remedies $own)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* The port of a bind; fails if it is none that other pods and the kubelet reach. Takes {what, bind}. */}}
{{- define "modelglot.port" -}}
{{- $bind := trimPrefix "tcp://" .bind -}}
{{- if contains "${" $bind -}}
{{- fail (printf "%s: the chart cannot read the reference in bind %s; write the address, such as 0.0.0.0:8080" .what .bind) -}}
{{- end -}}
{{- if not (regexMatch "^.+:[0-9]{1,5}$" $bind) -}}
{{- fail (printf "%s: expected a bind such as 0.0.0.0:8080 or [::]:8080, got %s" .what .bind) -}}
{{- end -}}
{{- $port := regexFind "[0-9]+$" $bind -}}
{{- if not (has (trimSuffix (printf ":%s" $port) $bind) (list "0.0.0.0" "[::]")) -}}
{{- fail (printf "%s: nothing outside the pod reaches %s; bind 0.0.0.0:%s or [::]:%s" .what .bind $port $port) -}}
{{- end -}}
{{- if or (eq (int $port) 0) (gt (int $port) 65535) -}}
{{- fail (printf "%s: a Service needs a port from 1 to 65535, got %s" .what .bind) -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{/* The port of a bind that may be absent or on loopback: then 0. Takes {what, bind}. */}}
{{- define "modelglot.optionalPort" -}}
{{- $bind := .bind | default "" | toString -}}
{{- if or (not $bind) (regexMatch "^(tcp://)?(127\\.|localhost:|\\[::1\\])" $bind) -}}
0
{{- else -}}
{{- include "modelglot.port" (dict "what" .what "bind" $bind) -}}
{{- end -}}
{{- end -}}

{{/*
http, grpc or tcp: what the protocols of a listener travel on. For several transports at one address all of them, in this order, as in
http,grpc. Takes {listener, protocols}.
*/}}
{{- define "modelglot.transport" -}}
{{- $transports := dict "v2-rest" "http" "v1-rest" "http" "umbridge" "http" "graphpipe" "http" "grps-rest" "http" "json" "http" "v2-grpc" "grpc" "grps-grpc" "grpc" "tfs-grpc" "grpc" "mip" "tcp" "grps-brpc" "tcp" -}}
{{- $spoken := list -}}
{{- range .protocols -}}
{{- $protocol := ternary "json" (toString .) (hasPrefix "json:" (toString .)) -}}
{{- if not (hasKey $transports $protocol) -}}
{{- fail (printf "listener '%v': the chart knows no protocol '%s'; expected one of %s" $.listener $protocol (keys $transports | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $spoken = append $spoken (get $transports $protocol) -}}
{{- end -}}
{{- $found := list -}}
{{- range list "http" "grpc" "tcp" -}}
{{- if has . $spoken -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- join "," $found -}}
{{- end -}}

{{/* Listeners with the names that their ports have: their own, where Kubernetes takes it for a port. Takes {listeners}. */}}
{{- define "modelglot.namedPorts" -}}
{{- $taken := list "health" "scaler" "admin" -}}
{{- $named := list -}}
{{- range .listeners -}}
{{- $name := .name -}}
{{- if or (not (regexMatch "^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$" $name)) (not (regexMatch "[a-z]" $name)) (contains "--" $name) (has $name $taken) -}}
{{- $name = printf "port-%d" (int .port) -}}
{{- end -}}
{{- $taken = append $taken $name -}}
{{- $named = append $named (merge (dict "portName" $name) .) -}}
{{- end -}}
{{- $named | toJson -}}
{{- end -}}

{{/*
The listener that an Ingress or a route means. Takes {listeners, listener, transport, what}; an empty name is the first one of the
transport, and an empty transport is any.
*/}}
{{- define "modelglot.listener" -}}
{{- $found := dict -}}
{{- range .listeners -}}
{{- if and (not $found) (or (not $.transport) (has $.transport (splitList "," .transport))) (or (not $.listener) (eq .name $.listener)) -}}
{{- $found = . -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- if not .transport -}}
{{- fail (printf "%s: no listener is called '%s'" .what .listener) -}}
{{- end -}}
{{- fail (printf "%s: no listener %sspeaks protocols over %s" .what (ternary (printf "'%s' " .listener) "" (ne .listener "")) .transport) -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/*
Fails where a map has a boolean or a number in the place of a text: YAML takes on, off, yes, no and 1.0 for such, and by the
time Helm hands the values over nobody can tell what was written. `forms` and `models` are left as they are: templates have
the keys of servers, and steps of graphs the names of tensors. Takes {key, value, path}.
*/}}
{{- define "modelglot.checkText" -}}
{{- $texts := list "settings" "adaptive" "address" "algorithms" "anonymous" "audience" "backend" "balance" "bind" "by" "ca"
     "cast" "certificate" "channels" "client" "client_ca" "client_crl" "command" "content_type" "datatype" "detail" "directory"
     "dns" "drop" "endpoints" "engine" "events" "fallback" "file" "files" "flavor" "form" "format" "forward_headers" "from"
     "header" "hide" "identity" "imaginary" "issuer" "jwks" "key" "labels" "layout" "level" "listener" "listeners" "load"
     "load_url" "measures" "method" "metric" "model" "name" "namespace" "nan" "operation" "operations" "options" "otlp"
     "outputs" "path" "payload" "per" "permissions" "prefix" "principal" "probe" "protocol" "protocols" "ready" "redis"
     "replace" "routes" "scale" "script" "select" "server_name" "service" "source" "srv" "state" "statuses" "stream" "tensors"
     "to" "token" "url" "version" "when" "without_redis" -}}
{{- if or (eq .key "forms") (and (eq .key "models") (kindIs "map" .value)) -}}
{{- else if kindIs "map" .value -}}
  {{- $freeKeys := has .key (list "flavor" "header" "labels" "operations" "prefix" "settings") -}}
  {{- range $key, $value := .value -}}
    {{- if has $key (list "true" "false") -}}
    {{- fail (printf "%s: YAML has read a key as the boolean %s (on, off, yes, no are booleans, too); quote it" $.path $key) -}}
    {{- end -}}
    {{- include "modelglot.checkText" (dict "key" (ternary $.key $key $freeKeys) "value" $value "path" (printf "%s.%s" $.path $key)) -}}
  {{- end -}}
{{- else if kindIs "slice" .value -}}
  {{- range $index, $value := .value -}}
    {{- include "modelglot.checkText" (dict "key" $.key "value" $value "path" (printf "%s[%d]" $.path $index)) -}}
  {{- end -}}
{{- else if has .key $texts -}}
  {{- if kindIs "bool" .value -}}
  {{- fail (printf "%s: a text belongs here, and YAML has read the boolean %v (on, off, yes, no are booleans, too); quote it" .path .value) -}}
  {{- else if not (or (kindIs "string" .value) (kindIs "invalid" .value)) -}}
  {{- fail (printf "%s: a text belongs here, and YAML has read the number %v; quote it" .path .value) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
