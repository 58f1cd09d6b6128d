{{- define "modelmeter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "modelmeter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "modelmeter.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "modelmeter.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "modelmeter.selector" -}}
app.kubernetes.io/name: {{ include "modelmeter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "modelmeter.labels" -}}
{{ include "modelmeter.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "modelmeter.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "modelmeter.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "modelmeter.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "modelmeter.severalPods" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) -}}true{{- end -}}
{{- end -}}

{{/* What calls may still need after SIGTERM: cut calls are settled, their last words flushed. */}}
{{- define "modelmeter.grace" -}}
{{- $delay := dig "server" "drain_delay_seconds" 0.0 (fromToml .Values.config) -}}
{{- add (int .Values.preStopSeconds) (int (ceil $delay)) (int .Values.drainSeconds) 10 -}}
{{- end -}}

{{/* What keeps a good configuration from running in a pod. Rendering fails, with the way to mend it. */}}
{{- define "modelmeter.check" -}}
{{- $config := fromToml .Values.config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "config is not TOML: %s" (get $config "Error")) -}}
{{- end -}}
{{- $server := default dict $config.server -}}
{{- $tls := hasKey $server "tls" -}}
{{- range $key, $value := dict "listen" "grpc.port" "drain_seconds" "drainSeconds" "allow_insecure" "allowInsecure" -}}
{{- if hasKey $server $key -}}
{{- fail (printf "config: remove server.%s; the chart's value %s sets it" $key $value) -}}
{{- end -}}
{{- end -}}
{{- $url := dig "ledger" "url" "" $config -}}
{{- if not (has $url (list "" "none")) -}}
{{- fail "config: remove ledger.url; ledger.existingSecret names the Secret with the URL" -}}
{{- end -}}
{{- if and (eq $url "none") .Values.ledger.existingSecret -}}
{{- fail "config says ledger.url = \"none\" beside ledger.existingSecret: remove one" -}}
{{- end -}}
{{- if ne $tls (not (empty .Values.tls.existingSecret)) -}}
{{- fail "TLS needs both tls.existingSecret and in config [server] tls = { certificate = \"/etc/modelmeter/tls/tls.crt\", key = \"/etc/modelmeter/tls/tls.key\" }" -}}
{{- end -}}
{{- range $name, $provider := $config.providers -}}
{{- if hasKey $provider "api_key_env" -}}
{{- fail (printf "config: providers.%s: use api_key_file = \"/etc/modelmeter/secrets/NAME/KEY\" and the value secrets, not api_key_env" $name) -}}
{{- end -}}
{{- if and (ne (toString $provider.kind) "replay") (not $tls) (not $.Values.allowInsecure) -}}
{{- fail (printf "provider %s would be reachable without TLS: set tls.existingSecret, or allowInsecure: true if a mesh encrypts" $name) -}}
{{- end -}}
{{- if and (ne (toString $provider.kind) "replay") (not (hasKey $config "identity")) (not $server.allow_anonymous) -}}
{{- fail (printf "provider %s would be open to whoever reaches the pod: add [identity] to config, or [server] allow_anonymous = true" $name) -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey $config "identity") (not (dig "identity" "open_health" false $config)) (not .Values.probes.privatePort) -}}
{{- fail "config: probes send no token: set identity.open_health = true, or use a private listener and probes.privatePort" -}}
{{- end -}}
{{- if and (dig "server" "tls" "client_ca" "" $config) (not .Values.probes.privatePort) -}}
{{- fail "config: probes show no certificate: set [server] private_listen = \"127.0.0.1:50052\" and probes.privatePort: 50052" -}}
{{- end -}}
{{- with .Values.probes.privatePort -}}
{{- if ne (default "" $server.private_listen) (printf "127.0.0.1:%d" (int .)) -}}
{{- fail (printf "probes.privatePort needs in config [server] private_listen = \"127.0.0.1:%d\"" (int .)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.enabled (not (hasSuffix (printf ":%d" (int .Values.metrics.port)) (dig "telemetry" "prometheus" "listen" "" $config))) -}}
{{- fail (printf "metrics.enabled needs in config [telemetry.prometheus] listen = \"0.0.0.0:%d\"" (int .Values.metrics.port)) -}}
{{- end -}}
{{- if and .Values.metrics.enabled (gt (int (default 1 $server.workers)) 1) -}}
{{- fail "config: remove server.workers: each worker has metrics of its own, on the next port, and only those of the first would be fetched and scaled by; take more pods (replicaCount, autoscaling)" -}}
{{- end -}}
{{- if and (include "modelmeter.severalPods" .) (not .Values.ledger.existingSecret) (ne $url "none") -}}
{{- fail "several pods cannot share a SQLite ledger: set ledger.existingSecret to a Secret with a PostgreSQL URL, or ledger.url = \"none\" in config" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not .Values.metrics.enabled) -}}
{{- fail "autoscaling counts calls in flight: set metrics.enabled" -}}
{{- end -}}
{{- $grace := int (include "modelmeter.grace" .) -}}
{{- if and (not (kindIs "invalid" .Values.terminationGracePeriodSeconds)) (lt (int .Values.terminationGracePeriodSeconds) $grace) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d and must be at least preStopSeconds + drainSeconds + 10 = %d, or calls are killed before their bill is written" (int .Values.terminationGracePeriodSeconds) $grace) -}}
{{- end -}}
{{- end -}}

{{/* How the kubelet asks. Its gRPC probes speak no TLS and do not reach the loopback; then the command line in the pod does. */}}
{{- define "modelmeter.probe" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
{{- if $root.Values.probes.privatePort -}}
exec:
  command:
    - modelmeter
    - healthcheck
    - --service={{ $service }}
    - --address=127.0.0.1:{{ $root.Values.probes.privatePort }}
{{- else if $root.Values.tls.existingSecret -}}
exec:
  command:
    - modelmeter
    - healthcheck
    - --service={{ $service }}
    - --address=127.0.0.1:{{ $root.Values.grpc.port }}
    - --ca-file=/etc/modelmeter/tls/ca.crt
    - --server-name={{ default (include "modelmeter.fullname" $root) $root.Values.tls.serverName }}
{{- else -}}
grpc:
  port: {{ $root.Values.grpc.port }}
  service: {{ $service }}
{{- end -}}
{{- end -}}
