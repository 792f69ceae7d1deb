{{- define "annulus.checkModel" -}}
{{- $model := .Values.config.model -}}
{{- $download := .Values.model.download -}}
{{- if and .Values.model.claim $download.repository -}}
{{- fail "model.claim and model.download.repository are both set: a model comes from one of them" -}}
{{- end -}}
{{- if and .Values.model.claim (not (hasPrefix "/models/" $model)) -}}
{{- fail (printf "model.claim is set, so config.model must be under /models/, not %s" $model) -}}
{{- end -}}
{{- if $download.repository -}}
{{- if ne $model "/var/lib/annulus/model" -}}
{{- fail (printf "model.download is set, so config.model must be /var/lib/annulus/model, not %s" $model) -}}
{{- end -}}
{{- if not $download.image -}}
{{- fail "model.download.image is empty: name an image with the program hf" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "annulus.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary .Release.Name "" .Values.serviceAccount.create) -}}
{{- end -}}
