#!/bin/bash
#HQ --cpus=1
#HQ --time-limit=2h
# Starts a model server on a free port, and writes the server's address to a file when the server responds.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
export PORT=$port

python3 model.py &                    # your model server; it listens on $PORT

host=$(hostname)                      # a name that the login node can reach
until curl -s "http://$host:$port/Info" > /dev/null; do sleep 0.2; done

mkdir -p "$UMBRIDGE_LOADBALANCER_COMM_FILEDIR"
echo "http://$host:$port" > "$UMBRIDGE_LOADBALANCER_COMM_FILEDIR/url-$HQ_JOB_ID.txt"
sleep infinity                        # the gateway ends the job
