{{/*
The Deployment's number of pods; nothing where an autoscaler counts them and there are none yet. With an autoscaler it is the number
that runs: Helm would take a field that a release no longer has for its default, one pod, until the autoscaler looks again. Takes
{values, live}: the Deployment in the cluster, or an empty map.
*/}}
{{- define "modelglot.replicas" -}}
{{- if not .values.autoscaling.enabled -}}
{{- int .values.replicaCount -}}
{{- else if hasKey (.live.spec | default dict) "replicas" -}}
{{- int .live.spec.replicas -}}
{{- end -}}
{{- end -}}
