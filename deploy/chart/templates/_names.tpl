{{- /* The name of all objects. The name of a release may start with a digit and have dots, which the
name of a Service may not. */}}
{{- define "feedbridge.name" -}}
{{- $name := .Release.Name | replace "." "-" }}
{{- if not (regexMatch "^[a-z]" $name) }}{{ $name = printf "%s-%s" .Chart.Name $name }}
{{- else if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- $name | trunc 53 | trimAll "-" }}
{{- end }}

{{- define "feedbridge.selector" -}}
app.kubernetes.io/name: feedbridge
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "feedbridge.labels" -}}
{{ include "feedbridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "feedbridge.image" -}}
{{- with .Values.image }}{{ if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{- /* The name of the fleet. The name of a release may start with a digit and have dots; with the
prefix it has 64 characters at most, which a fleet may have. */}}
{{- define "feedbridge.fleet" -}}
{{- if .Values.config.fleet }}{{ fail "fleet.enabled and config.fleet both set up a fleet: remove one of them" }}{{ end }}
{{- $name := .Values.fleet.name | default (.Release.Name | replace "." "-") }}
{{- if regexMatch "^[a-z]" $name }}{{ $name }}{{ else }}{{ printf "feedbridge-%s" $name }}{{ end }}
{{- end }}
