{{/*
What the chart reads of the gateway's configuration, so that nobody writes a port twice.

`modelglot.facts` is the only entry: JSON of
  text       what the ConfigMap holds; empty with existingConfigMap
  backends   how many
  listeners  of {name, portName, port, servicePort, transport, protocols, model, prefix, tls, clientCertificate, auth}, without
             those on unix sockets; clientCertificate: clients must have one; auth: they must identify themselves
  healthPort, healthTls
  scalerPort, scalerTls   of KEDA's external scaler; 0 where it is off, or on loopback
  adminPort, adminTls     of the status API; 0 where it is off, or on loopback
  preStop, grace   seconds
  endpoints  what the gateway connects to, of {what, endpoint}: backends, collector, Redis, issuers
  srv        of {what, name}: DNS names whose SRV records name endpoints
  unreadable where the configuration has endpoints that the chart cannot read
  perReplica   what each replica applies by itself, for want of `redis`
*/}}

{{- define "modelglot.facts" -}}
{{- /* Templates share the root context, so the first one that needs the facts computes them for all. */ -}}
{{- if not (hasKey . "ModelglotFacts") -}}
{{- $_ := set . "ModelglotFacts" (include "modelglot.computedFacts" .) -}}
{{- end -}}
{{- get . "ModelglotFacts" -}}
{{- end -}}

{{- define "modelglot.computedFacts" -}}
{{- $facts := dict -}}
{{- if (.Values.existingConfigMap).name -}}
{{- $facts = include "modelglot.factsOfExisting" . | fromJson -}}
{{- else -}}
{{- $facts = include "modelglot.factsOfConfig" . | fromJson -}}
{{- end -}}
{{- $listeners := list -}}
{{- range $facts.listeners -}}
{{- $listeners = append $listeners (merge (dict "servicePort" (get (($.Values.service).ports | default dict) .name | default .port | int)) .) -}}
{{- end -}}
{{- $_ := set $facts "listeners" $listeners -}}
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
{{- if (.Values.demo).enabled -}}
{{- fail "demo.enabled adds backends and routes to `config`; it does not go with existingConfigMap" -}}
{{- end -}}
{{- $listeners := list -}}
{{- range $existing.listeners -}}
{{- $transport := include "modelglot.transport" (dict "listener" .name "protocols" .protocols) -}}
{{- $listeners = append $listeners (merge (dict "transport" $transport) .) -}}
{{- end -}}
{{- dict "text" "" "backends" 1 "listeners" (include "modelglot.namedPorts" (dict "listeners" $listeners) | fromJsonArray) "healthPort" ($existing.healthPort | default 9091) "healthTls" ($existing.healthTls | default false)
     "scalerPort" 0 "scalerTls" false "adminPort" 0 "adminTls" false
     "delay" ($existing.drainDelay | default 0) "timeout" (kindIs "invalid" $existing.drainTimeout | ternary 30 $existing.drainTimeout)
     "endpoints" list "srv" list "unreadable" (list (printf "the ConfigMap %s" $existing.name))
     "perReplica" (list (printf "each rate_limit and placement of the ConfigMap %s that has no redis" $existing.name)) | toJson -}}
{{- end -}}

{{- define "modelglot.factsOfConfig" -}}
{{- $config := .Values.config | default dict -}}
{{- $text := "" -}}
{{- if kindIs "string" $config -}}
  {{- if (.Values.demo).enabled -}}
  {{- fail "demo.enabled adds backends and routes to `config`, which must be a map for that, not a text" -}}
  {{- end -}}
  {{- $text = $config -}}
  {{- $config = fromYaml $text -}}
  {{- if hasKey $config "Error" -}}
  {{- fail (printf "config: the text is no YAML map: %s" (get $config "Error")) -}}
  {{- end -}}
{{- else -}}
  {{- include "modelglot.checkText" (dict "key" "" "value" $config "path" "config") -}}
{{- end -}}
{{- include "modelglot.checkKinds" $config -}}
{{- if not (get $config "listeners") -}}
{{- fail "config: it has no listeners, such as [{name: http, bind: \"0.0.0.0:8080\", protocols: [v2-rest]}]" -}}
{{- end -}}
{{- if not ($config.health).bind -}}
{{- fail "config: the probes need the health port: health: {bind: \"0.0.0.0:9091\"}" -}}
{{- end -}}
{{- range $index, $listener := $config.listeners -}}
  {{- if not (kindIs "map" $listener) -}}
  {{- fail (printf "config: listeners[%d]: expected a map, such as {name: http, bind: \"0.0.0.0:8080\", protocols: [v2-rest]}" $index) -}}
  {{- end -}}
{{- end -}}
{{- if (.Values.demo).enabled -}}
{{- $config = include "modelglot.withDemo" (dict "root" . "config" $config) | fromJson -}}
{{- end -}}
{{- include "modelglot.checkFiles" (dict "root" . "config" $config) -}}
{{- $listeners := list -}}
{{- range $listener := $config.listeners -}}
  {{- $what := printf "config: listener '%v'" $listener.name -}}
  {{- if not (hasPrefix "unix://" (toString $listener.bind)) -}}
    {{- $port := include "modelglot.port" (dict "what" $what "bind" (toString $listener.bind)) -}}
    {{- $transport := include "modelglot.transport" (dict "listener" $listener.name "protocols" $listener.protocols) -}}
    {{- $listeners = append $listeners (dict "name" (toString $listener.name) "port" (int $port) "transport" $transport
         "protocols" $listener.protocols "model" (get $listener "model") "prefix" (get $listener "prefix") "tls" (kindIs "map" $listener.tls)
         "clientCertificate" (eq (($listener.tls).client | default "none") "required")
         "auth" (and (kindIs "map" $listener.auth) (not ($listener.auth).anonymous))) -}}
  {{- end -}}
{{- end -}}
{{- $outgoing := include "modelglot.outgoing" $config | fromJson -}}
{{- $scaler := $config.scaler | default dict -}}
{{- $admin := $config.admin | default dict -}}
{{- include "modelglot.checkAccess" (dict "scaler" $scaler "admin" $admin "auth" ($config.auth | default dict)) -}}
{{- $drain := $config.drain | default dict -}}
{{- range $key, $value := pick $drain "delay" "timeout" -}}
  {{- if not (or (kindIs "invalid" $value) (regexMatch "^[0-9]*\\.?[0-9]+$" (toString $value))) -}}
  {{- fail (printf "config: drain: %s is %v; the chart computes the grace period of it and wants a number of seconds" $key $value) -}}
  {{- end -}}
{{- end -}}
{{- dict "text" ($text | default (toYaml $config)) "backends" (len ($config.backends | default dict)) "listeners" (include "modelglot.namedPorts" (dict "listeners" $listeners) | fromJsonArray)
     "healthPort" (include "modelglot.port" (dict "what" "config: health" "bind" (toString $config.health.bind)) | int)
     "healthTls" (kindIs "map" $config.health.tls)
     "scalerPort" (include "modelglot.optionalPort" (dict "what" "config: scaler" "bind" $scaler.bind) | int) "scalerTls" (kindIs "map" $scaler.tls)
     "adminPort" (include "modelglot.optionalPort" (dict "what" "config: admin" "bind" $admin.bind) | int) "adminTls" (kindIs "map" $admin.tls)
     "delay" (get $drain "delay" | default 0) "timeout" (kindIs "invalid" $drain.timeout | ternary 30 $drain.timeout)
     "endpoints" $outgoing.endpoints "srv" $outgoing.srv "unreadable" $outgoing.unreadable
     "perReplica" (include "modelglot.withoutRedis" (dict "value" $config "path" "config") | fromJsonArray) | toJson -}}
{{- end -}}

{{/*
Fails if a section that the chart reads is no map, or no list: Go's own message would not name it. Takes the configuration.
*/}}
{{- define "modelglot.checkKinds" -}}
{{- if not (kindIs "map" .) -}}
{{- fail "config: it must be a map, or the text of one, such as {listeners: [...], health: {bind: \"0.0.0.0:9091\"}}" -}}
{{- end -}}
{{- $tls := "{certificate: /tls/tls.crt, key: /tls/tls.key}" -}}
{{- $sections := dict "admin" "{bind: \"127.0.0.1:9090\"}" "health" "{bind: \"0.0.0.0:9091\"}" "scaler" "{bind: \"0.0.0.0:9092\"}"
     "auth" "{keys: {file: /etc/gateway-keys/keys.yaml}}" "drain" "{delay: 5, timeout: 30}" "log" "{format: json}"
     "tracing" "{otlp: \"http://collector:4318\"}" "backends" "{lab: {protocol: v2-rest, endpoints: [\"lab:8000\"]}}" -}}
{{- include "modelglot.checkMaps" (dict "value" . "path" "config" "examples" $sections) -}}
{{- include "modelglot.checkLists" (dict "value" . "path" "config" "examples" (dict "listeners" "[{name: http, bind: \"0.0.0.0:8080\", protocols: [v2-rest]}]" "routes" "[{match: {model: \"*\"}, backend: lab}]")) -}}
{{- range $name := list "admin" "health" "scaler" -}}
{{- include "modelglot.checkMaps" (dict "value" (get $ $name | default dict) "path" (printf "config.%s" $name) "examples" (dict "tls" $tls)) -}}
{{- end -}}
{{- include "modelglot.checkMaps" (dict "value" (.auth | default dict) "path" "config.auth" "examples" (dict "keys" "{file: /etc/gateway-keys/keys.yaml}")) -}}
{{- include "modelglot.checkMaps" (dict "value" (.log | default dict) "path" "config.log" "examples" (dict "payloads" "{to: /var/log/payloads}")) -}}
{{- range $index, $listener := .listeners -}}
{{- if kindIs "map" $listener -}}
{{- $path := printf "config.listeners[%d]" $index -}}
{{- include "modelglot.checkMaps" (dict "value" $listener "path" $path "examples" (dict "tls" $tls)) -}}
{{- include "modelglot.checkLists" (dict "value" $listener "path" $path "examples" (dict "protocols" "[v2-rest]")) -}}
{{- end -}}
{{- end -}}
{{- range $name, $backend := .backends -}}
{{- $path := printf "config.backends.%s" $name -}}
{{- include "modelglot.checkMaps" (dict "value" $.backends "path" "config.backends" "examples" (dict $name "{protocol: v2-rest, endpoints: [\"lab:8000\"]}")) -}}
{{- include "modelglot.checkLists" (dict "value" ($backend | default dict) "path" $path "examples" (dict "endpoints" "[\"lab:8000\"]")) -}}
{{- include "modelglot.checkMaps" (dict "value" ($backend | default dict) "path" $path "examples" (dict "discovery" "{dns: all}")) -}}
{{- end -}}
{{- end -}}

{{/* Fails if a key of a map has a value that is neither a map nor absent. Takes {value, path, examples}: an example for each key. */}}
{{- define "modelglot.checkMaps" -}}
{{- range $key, $example := .examples -}}
{{- $found := get $.value $key -}}
{{- if and (hasKey $.value $key) (not (kindIs "map" $found)) (not (kindIs "invalid" $found)) -}}
{{- fail (printf "%s.%s must be a map, such as %s, not %s" $.path $key $example (toJson $found)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails if a key of a map has a value that is neither a list nor absent. Takes {value, path, examples}, as checkMaps. */}}
{{- define "modelglot.checkLists" -}}
{{- range $key, $example := .examples -}}
{{- $found := get $.value $key -}}
{{- if and (hasKey $.value $key) (not (kindIs "slice" $found)) (not (kindIs "invalid" $found)) -}}
{{- fail (printf "%s.%s must be a list, such as %s, not %s" $.path $key $example (toJson $found)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Fails if the status API or the scaler is open to everybody who reaches the pod: the gateway would not start. Takes {scaler, admin,
auth}, sections of the configuration.
*/}}
{{- define "modelglot.checkAccess" -}}
{{- $loopback := "bind 127.0.0.1:PORT (`kubectl port-forward` reaches it)" -}}
{{- if ne (include "modelglot.optionalPort" (dict "what" "config: admin" "bind" .admin.bind) | trim) "0" -}}
  {{- if kindIs "invalid" .admin.auth -}}
  {{- fail (printf "config: admin: everybody who reaches %s could use the status API; %s, or set `auth: {}` in `admin`, and `auth: {keys: {file: ...}}` in config" .admin.bind $loopback) -}}
  {{- else if not (or .auth.keys .auth.jwt) -}}
  {{- fail "config: admin: `auth` in config names no keys and no issuer of tokens for the status API; set `auth: {keys: {file: ...}}` or `auth: {jwt: ...}`" -}}
  {{- end -}}
{{- end -}}
{{- if ne (include "modelglot.optionalPort" (dict "what" "config: scaler" "bind" .scaler.bind) | trim) "0" -}}
  {{- if not (or .scaler.open (eq ((.scaler.tls).client | default "") "required")) -}}
  {{- fail (printf "config: scaler: everybody who reaches %s could ask it; set `tls` with `client: required`, or `open: true` beside a NetworkPolicy for KEDA's operator" .scaler.bind) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/*
Fails if the configuration names a file in a folder of the chart's that nothing mounts: the gateway would not start. Takes {root, config}.
*/}}
{{- define "modelglot.checkFiles" -}}
{{- $values := .root.Values -}}
{{- $secrets := dict "/tls" (include "modelglot.tlsSecret" .root) "/tls-clients" ($values.tls).clientCaSecret "/etc/gateway-keys" ($values.keys).existingSecret -}}
{{- $remedies := dict "/tls" "tls.existingSecret or tls.certManager" "/tls-clients" "tls.clientCaSecret" "/etc/gateway-keys" "keys.existingSecret" -}}
{{- $files := list (((.config.auth).keys).file | default "") -}}
{{- range concat .config.listeners (list .config.health (.config.admin | default dict) (.config.scaler | default dict)) -}}
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
{{- if not .protocols -}}
{{- fail (printf "listener '%v': it has no protocols, such as [v2-rest]" .listener) -}}
{{- end -}}
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
{{- fail (printf "%s: unknown listener '%s'" .what .listener) -}}
{{- end -}}
{{- fail (printf "%s: no listener %sspeaks protocols over %s" .what (ternary (printf "'%s' " .listener) "" (ne .listener "")) .transport) -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/*
Fails where a map has a boolean for a key, or a boolean or a number in the place of a text: Helm's YAML 1.1 takes y, on, off, yes, no
and 1.0 for such, and by the time Helm hands the values over nobody can tell what was written. The values of `forms` and `models` are
left as they are: templates and constants are of any type. Takes {key, value, path}, and {keysOnly} if values are left.
*/}}
{{- define "modelglot.checkText" -}}
{{- $texts := list "settings" "adaptive" "address" "algorithms" "anonymous" "audience" "backend" "balance" "bind" "by" "ca"
     "cast" "certificate" "channels" "check" "client" "client_ca" "client_crl" "command" "content_type" "datatype" "detail" "directory"
     "dns" "drop" "endpoints" "engine" "events" "fallback" "file" "files" "flavor" "form" "format" "forward_headers" "from"
     "header" "hide" "identity" "issuer" "jwks" "key" "labels" "layout" "level" "listener" "listeners" "loading"
     "load_url" "measures" "method" "metric" "model" "name" "namespace" "nan" "operation" "operations" "options" "origins" "otlp"
     "outputs" "path" "payload" "permissions" "pinned" "prefix" "principal" "probe" "protocol" "protocols" "ready" "redis"
     "replace" "routes" "scale" "script" "select" "server_name" "service" "source" "srv" "state" "statuses" "stream" "tensors"
     "to" "token" "url" "version" "when" "without_redis" -}}
{{- $keysOnly := or .keysOnly (has .path (list "config.forms" "config.models")) -}}
{{- if kindIs "map" .value -}}
  {{- $freeKeys := has .key (list "flavor" "header" "headers" "labels" "operations" "prefix" "settings") -}}
  {{- $ofChildren := eq .key "headers" | ternary "header" .key -}}{{- /* limits.headers is a number */ -}}
  {{- range $key, $value := .value -}}
    {{- if has $key (list "true" "false") -}}
    {{- $written := eq $key "true" | ternary (list "y, yes and on" "y") (list "n, no and off" "n") -}}
    {{- fail (printf "%s: a key is the boolean %s, as which YAML 1.1 (Helm's) reads %s; quote it, such as \"%s\". If the text %s is meant, write config as a text (config: |)" $.path $key (first $written) (last $written) $key) -}}
    {{- end -}}
    {{- include "modelglot.checkText" (dict "key" (ternary $ofChildren $key $freeKeys) "value" $value "path" (printf "%s.%s" $.path $key) "keysOnly" $keysOnly) -}}
  {{- end -}}
{{- else if kindIs "slice" .value -}}
  {{- range $index, $value := .value -}}
    {{- include "modelglot.checkText" (dict "key" $.key "value" $value "path" (printf "%s[%d]" $.path $index) "keysOnly" $keysOnly) -}}
  {{- end -}}
{{- else if and (not $keysOnly) (has .key $texts) -}}
  {{- if kindIs "bool" .value -}}
  {{- fail (printf "%s: a text belongs here, and YAML has read the boolean %v (y, n, on, off, yes, no are booleans, too); quote it" .path .value) -}}
  {{- else if not (or (kindIs "string" .value) (kindIs "invalid" .value)) -}}
  {{- fail (printf "%s: a text belongs here, and YAML has read the number %v; quote it" .path .value) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
