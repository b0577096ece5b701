{{/* An HTTPRoute or a GRPCRoute. Takes {root, values, kind, transport, what}. */}}
{{- define "modelglot.route" -}}
{{- $facts := include "modelglot.facts" .root | fromJson }}
{{- $listener := include "modelglot.listener" (dict "listeners" $facts.listeners "listener" .values.listener "transport" .transport "what" .what) | fromJson }}
{{- if not .values.parentRefs }}
{{- fail (printf "%s: parentRefs names no Gateway, such as [{name: gateway}]" .what) }}
{{- end }}
apiVersion: gateway.networking.k8s.io/v1
kind: {{ .kind }}
{{ include "modelglot.metadata" (dict "root" .root "annotations" .values.annotations) }}
spec:
  parentRefs:
    {{- toYaml .values.parentRefs | nindent 4 }}
  {{- with .values.hostnames }}
  hostnames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - backendRefs:
        - name: {{ include "modelglot.fullname" .root }}
          port: {{ get .root.Values.service.ports $listener.name | default $listener.port | int }}
      {{- with .values.matches }}
      matches:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.filters }}
      filters:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with get .values "timeouts" }}
      timeouts:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
