package main

import (
	"context"
	"net"
	"strconv"

	"github.com/feedbridge/feedbridge/config"
)

// localhost returns the address of a port on the loopback interface.
func localhost(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}

// addressOrFree returns the local address of a port if it is not in use, and otherwise one with a free port.
func addressOrFree(ctx context.Context, port int) string {
	addr := localhost(port)
	listener, err := listenTCP(ctx, addr)
	if err != nil || listener.Close() != nil {
		return localhost(0)
	}
	return addr
}

// freePorts returns settings that replace the addresses in cfg that are in use by ones with a free port, for the keys
// of which that may be done.
func freePorts(ctx context.Context, cfg *config.Config, mayChange func(key string) bool) []string {
	listens := map[string]string{"admin.listen": cfg.Admin.Listen}
	for name, bus := range cfg.Buses {
		if bus.Embedded != nil {
			listens["buses."+name+".embedded.listen"] = bus.Embedded.Listen
		}
	}
	if cfg.Serve != nil {
		listens["serve.listen"] = cfg.Serve.Listen
	}
	var set []string
	for key, addr := range listens {
		if addr == "" || !mayChange(key) {
			continue
		}
		listener, err := listenTCP(ctx, addr)
		if err != nil || listener.Close() != nil {
			set = append(set, key+"="+localhost(0))
		}
	}
	return set
}
