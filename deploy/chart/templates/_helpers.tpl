{{/* Labels of every object, besides app.kubernetes.io/name. */}}
{{- define "tarragon.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tarragon.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Not empty if programs may report their progress: no Role of a namespace can allow the operator to review tokens. */}}
{{- define "tarragon.takesReports" -}}
{{- if and .Values.progress.enabled (not .Values.namespaces) }}true{{ end }}
{{- end }}

{{/* The operator's options that follow from values. */}}
{{- define "tarragon.arguments" -}}
{{- include "tarragon.validate" . }}
{{- range .Values.namespaces }}
- --namespace={{ . }}
{{- end }}
{{- if .Values.accelerators }}
- --controller-config-file=/etc/tarragon/controller_config_file.yaml
{{- end }}
{{- if .Values.progress.fromLogs }}
- --read-progress-from-logs
{{- end }}
{{- if and (include "tarragon.takesReports" .) .Values.progress.url }}
- --progress-url={{ .Values.progress.url }}
{{- end }}
{{- if .Values.queues.enabled }}
- --queues=/etc/tarragon-queues/queues.yaml
{{- end }}
{{- with .Values.scheduling }}
{{- with .policy }}
- --policy={{ . }}
{{- end }}
{{- with .placement }}
- --placement={{ . }}
{{- end }}
{{- range $flag, $seconds := dict "aged" .aged "idle" .idle "cool-down" .coolDown "patience" .patience "start-patience" .startPatience }}
{{- if not (kindIs "invalid" $seconds) }}
- --{{ $flag }}={{ $seconds }}
{{- end }}
{{- end }}
{{- range $scheduler, $kind := .podGroups }}
- --pod-groups={{ $scheduler }}={{ $kind }}
{{- end }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* An operator reads its accelerators only when it starts, so a change of them replaces its pods. */}}
{{- define "tarragon.podAnnotations" -}}
{{- with .Values.accelerators }}
tarragon.dev/accelerators: {{ toYaml . | sha256sum }}
{{- end }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Kubernetes 1.20 has no policy/v1. */}}
{{- define "tarragon.policyVersion" -}}
{{- if .Capabilities.APIVersions.Has "policy/v1" }}policy/v1{{ else }}policy/v1beta1{{ end }}
{{- end }}

{{- define "tarragon.apiServer" -}}
- to:
  {{- range .Values.networkPolicy.apiServer }}
  - ipBlock:
      cidr: {{ . }}
  {{- end }}
  ports:
  {{- range .Values.networkPolicy.apiServerPorts }}
  - port: {{ . }}
    protocol: TCP
  {{- end }}
{{- end }}

{{/* What no schema can say, because it depends on two values. */}}
{{- define "tarragon.validate" -}}
{{- if and .Values.namespaces .Values.queues.enabled }}
{{- fail "queues.enabled: an operator of some namespaces does not schedule, so it has no queues; leave namespaces empty" }}
{{- end }}
{{- if and .Values.namespaces .Values.progress.fromLogs }}
{{- fail "progress.fromLogs: an operator of some namespaces does not schedule by progress; leave namespaces empty" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service) }}
{{- fail "metrics.serviceMonitor.enabled: it finds the operators by the Service of metrics.service (which is false)" }}
{{- end }}
{{- $common := .Values.commonLabels }}
{{- range $name, $labels := dict "serviceMonitor" .Values.metrics.serviceMonitor.labels "prometheusRule" .Values.metrics.prometheusRule.labels }}
{{- range $label, $_ := $labels }}
{{- if hasKey $common $label }}
{{- fail (printf "metrics.%s.labels: %s is among commonLabels, too; leave it in one of them" $name $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled .Values.replicas }}
{{- $least := .Values.podDisruptionBudget.minAvailable }}
{{- if ge (kindIs "string" $least | ternary 1 (int $least)) (int .Values.replicas) }}
{{- fail "podDisruptionBudget.minAvailable must be less than replicas, or drains wait for ever" }}
{{- end }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.apiServer) }}
{{- fail "networkPolicy.apiServer is empty, which would cut off the operator; `kubectl get service,endpoints kubernetes -n default` shows the addresses: --set 'networkPolicy.apiServer={10.96.0.1/32,172.18.0.2/32}'" }}
{{- end }}
{{- end }}
