{{- define "annulus.labels" -}}
{app.kubernetes.io/name: annulus, app.kubernetes.io/instance: {{ .Release.Name | quote }}}
{{- end -}}
