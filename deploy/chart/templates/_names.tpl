{{- define "feedbridge.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "feedbridge.selector" -}}
app.kubernetes.io/name: feedbridge
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "feedbridge.labels" -}}
{{ include "feedbridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "feedbridge.image" -}}
{{- with .Values.image }}{{ if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}
