#!/bin/sh
# Make the certificates of compose.yml in /certs, once; each later run renews those that expire soon.
# The authority's key stays in /authority, which no other service mounts. All daemons share /certs,
# so this is a trial: in production each gets only its own files.
set -eu
cd /authority
if [ -f ready ]; then
    croupier cert renew .
else
    rm -f ./*.crt ./*.key
    croupier cert init . --cluster compose
    for n in 1 2 3; do
        croupier cert etcd "etcd$n" --address "etcd$n,127.0.0.1"
        croupier cert master "master$n" --address "master$n,127.0.0.1"
        croupier cert agent "agent$n" --address "agent$n,127.0.0.1"
    done
    # What masters show to etcd.
    croupier cert etcd client --address localhost
    croupier cert client admin
    (umask 077 && python -c 'import secrets; print(secrets.token_urlsafe(32))' > metrics.token)
    touch ready
fi
[ -f secrets.key ] ||
    (umask 077 && python -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())' > secrets.key)
for file in ./*.crt ./*.key metrics.token; do
    [ "$file" = ./ca.key ] || cp "$file" /certs/
done
cd /certs
cp metrics.token prometheus.token
cp metrics.token agent-metrics.token
chmod 600 ./*.key ./*.token
# Masters and the command run as 10001, Prometheus as 65534, agents and etcd as root.
chown 10001:10001 master-*.key etcd-client.key client-admin.key secrets.key metrics.token
chown 65534:65534 prometheus.token
