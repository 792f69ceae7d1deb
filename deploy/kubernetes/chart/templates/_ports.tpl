{{- /* The port at the end of an address; empty if it has none. */ -}}
{{- define "annulus.portOf" -}}
{{- regexFind "[0-9]+$" (. | default "") -}}
{{- end -}}
