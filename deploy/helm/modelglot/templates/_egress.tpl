{{/*
The egress rules that let the gateway reach the endpoints of its backends, as a JSON list. A NetworkPolicy selects pods and
addresses, not names, so a name is read as the cluster's DNS reads it:
  NAME                     a Service of the release's own namespace: its pods, on that port
  NAME.NAMESPACE           (two labels) and *.NAMESPACE.svc[...]: pods of that namespace, on that port
  other names              outside of the cluster: every address, on that port
  an IP address            that address, on that port
Loopback and unix sockets need no rule. Takes the endpoints of `gateway.facts`, and whether there are `extra` rules.
*/}}
{{- define "modelglot.egress" -}}
{{- $rules := list -}}
{{- $extra := .extra -}}
{{- range .endpoints -}}
  {{- $address := regexReplaceAll "^[a-z]+://" .endpoint "" -}}
  {{- $authority := regexFind "^[^/]*" $address -}}
  {{- $port := regexFind ":[0-9]+$" $authority | trimPrefix ":" | default (hasPrefix "https://" .endpoint | ternary "443" "80") -}}
  {{- $host := regexReplaceAll ":[0-9]+$" $authority "" | trimPrefix "[" | trimSuffix "]" | trimSuffix "." | lower -}}
  {{- $labels := splitList "." $host -}}
  {{- $peers := list -}}
  {{- if contains "${" .endpoint -}}
    {{- if not $extra -}}
    {{- fail (printf "networkPolicy: the chart cannot read the reference in endpoint %s of backend '%s'; let it through by networkPolicy.extraEgress" .endpoint .backend) -}}
    {{- end -}}
  {{- else if or (hasPrefix "unix://" .endpoint) (eq $host "localhost") (hasPrefix "127." $host) (eq $host "::1") -}}
  {{- else if regexMatch "^[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+$" $host -}}
    {{- $peers = list (dict "ipBlock" (dict "cidr" (printf "%s/32" $host))) -}}
  {{- else if contains ":" $host -}}
    {{- $peers = list (dict "ipBlock" (dict "cidr" (printf "%s/128" $host))) -}}
  {{- else if eq (len $labels) 1 -}}
    {{- $peers = list (dict "podSelector" dict) -}}
  {{- else if regexMatch "^[^.]+\\.[^.]+$" $host -}}
    {{- $peers = list (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" (last $labels)))) -}}
  {{- else if regexMatch "\\.[^.]+\\.svc(\\..+)?$" $host -}}
    {{- $namespace := regexReplaceAll "^.*\\.([^.]+)\\.svc(\\..+)?$" $host "${1}" -}}
    {{- $peers = list (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" $namespace))) -}}
  {{- else -}}
    {{- $peers = list (dict "ipBlock" (dict "cidr" "0.0.0.0/0")) (dict "ipBlock" (dict "cidr" "::/0")) -}}
  {{- end -}}
  {{- if $peers -}}
  {{- $rules = append $rules (dict "to" $peers "ports" (list (dict "protocol" "TCP" "port" (int $port)))) -}}
  {{- end -}}
{{- end -}}
{{- uniq $rules | toJson -}}
{{- end -}}
