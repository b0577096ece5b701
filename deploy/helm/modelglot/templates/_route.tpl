{{/*
A route of the Gateway API. Takes {root, values, kind, transport, what}, and for kinds of which there can be several, {suffix} of the
name.
*/}}
{{- define "modelglot.route" -}}
{{- $facts := include "modelglot.facts" .root | fromJson }}
{{- $listener := include "modelglot.listener" (dict "listeners" $facts.listeners "listener" .values.listener "transport" .transport "what" .what) | fromJson }}
{{- if not .values.parentRefs }}
{{- fail (printf "%s: parentRefs names no Gateway, such as [{name: gateway}]" .what) }}
{{- end }}
apiVersion: {{ get .values "apiVersion" | default "gateway.networking.k8s.io/v1" }}
kind: {{ .kind }}
{{ include "modelglot.metadata" (dict "root" .root "suffix" (.suffix | default "") "annotations" .values.annotations) }}
spec:
  parentRefs:
    {{- toYaml .values.parentRefs | nindent 4 }}
  {{- with get .values "hostnames" }}
  hostnames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - backendRefs:
        - name: {{ include "modelglot.fullname" .root }}
          port: {{ int $listener.servicePort }}
      {{- with get .values "matches" }}
      matches:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with get .values "filters" }}
      filters:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with get .values "timeouts" }}
      timeouts:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
