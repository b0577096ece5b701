{{/*
The egress rules that let the gateway reach what its configuration names, as a JSON list. A NetworkPolicy selects pods and
addresses, not names, so a name is read as the cluster's DNS reads it:
  NAME                     a Service of the release's own namespace: its pods, on that port
  NAME.NAMESPACE           (two labels) and *.NAMESPACE.svc[...]: pods of that namespace, on that port
  other names              outside of the cluster: every address, on that port
  an IP address            that address, on that port
SRV records of a Service in the cluster: its namespace's pods, on every TCP port. Loopback and unix sockets need no rule. Fails
where something cannot be read and there are no `extra` rules. Takes {endpoints, srv, unreadable} of `modelglot.facts`, and
{extra}.
*/}}
{{- define "modelglot.egress" -}}
{{- $rules := list -}}
{{- $unreadable := .unreadable -}}
{{- range .endpoints -}}
  {{- $reference := contains "${" .endpoint -}}
  {{- $url := urlParse (ternary "unix:" (contains "://" .endpoint | ternary .endpoint (printf "tcp://%s" .endpoint)) $reference) -}}
  {{- if $reference -}}
  {{- $unreadable = append $unreadable (printf "the reference in endpoint %s of %s" .endpoint .what) -}}
  {{- else if ne $url.scheme "unix" -}}
  {{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (get (dict "https" "443" "redis" "6379" "rediss" "6379") $url.scheme | default "80") -}}
  {{- $host := regexReplaceAll ":[0-9]+$" $url.host "" | trimPrefix "[" | trimSuffix "]" | trimSuffix "." | lower -}}
  {{- $peers := include "modelglot.peers" $host | fromJsonArray -}}
  {{- if $peers -}}
  {{- $rules = append $rules (dict "to" $peers "ports" (list (dict "protocol" "TCP" "port" (int $port)))) -}}
  {{- end -}}
  {{- end -}}
{{- end -}}
{{- range .srv -}}
  {{- $name := trimSuffix "." .name | lower -}}
  {{- if and (regexMatch "\\.svc(\\..+)?$" $name) (not (contains "${" $name)) -}}
  {{- $rules = append $rules (dict "to" (include "modelglot.peers" $name | fromJsonArray) "ports" (list (dict "protocol" "TCP"))) -}}
  {{- else -}}
  {{- $unreadable = append $unreadable (printf "the servers that %s of %s names" .name .what) -}}
  {{- end -}}
{{- end -}}
{{- if and $unreadable (not .extra) -}}
{{- fail (printf "networkPolicy: the chart cannot read %s; let through by networkPolicy.extraEgress what is outside the pod, or name 127.0.0.1/32 there if nothing is" (first $unreadable)) -}}
{{- end -}}
{{- uniq $rules | toJson -}}
{{- end -}}

{{/* The NetworkPolicy peers that a host is, as a JSON list; loopback is none. Takes the name or the address in lower case. */}}
{{- define "modelglot.peers" -}}
{{- $peers := list -}}
{{- if or (eq . "localhost") (hasPrefix "127." .) (eq . "::1") -}}
{{- else if regexMatch "^[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+$" . -}}
  {{- $peers = list (dict "ipBlock" (dict "cidr" (printf "%s/32" .))) -}}
{{- else if contains ":" . -}}
  {{- $peers = list (dict "ipBlock" (dict "cidr" (printf "%s/128" .))) -}}
{{- else if not (contains "." .) -}}
  {{- $peers = list (dict "podSelector" dict) -}}
{{- else if regexMatch "^[^.]+\\.[^.]+$" . -}}
  {{- $peers = list (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" (splitList "." . | last)))) -}}
{{- else if regexMatch "\\.[^.]+\\.svc(\\..+)?$" . -}}
  {{- $namespace := regexReplaceAll "^.*\\.([^.]+)\\.svc(\\..+)?$" . "${1}" -}}
  {{- $peers = list (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" $namespace))) -}}
{{- else -}}
  {{- $peers = list (dict "ipBlock" (dict "cidr" "0.0.0.0/0")) (dict "ipBlock" (dict "cidr" "::/0")) -}}
{{- end -}}
{{- $peers | toJson -}}
{{- end -}}
