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

// availableAddress returns an address, or if it is in use one with one of the next ports, which the system does not
// give to clients, or else another one of this machine with a free port.
func availableAddress(ctx context.Context, addr string) string {
	all := []string{addr}
	if host, text, err := net.SplitHostPort(addr); err == nil {
		port, _ := strconv.Atoi(text)
		for n := range 100 {
			all = append(all, net.JoinHostPort(host, strconv.Itoa(port+1+n)))
		}
	}
	for _, at := range append(all, localhost(0)) {
		if listener, err := listenTCP(ctx, at); err == nil {
			_ = listener.Close()
			if at == addr {
				return addr
			}
			return listener.Addr().String()
		}
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
		if availableAddress(ctx, addr) != addr {
			set = append(set, key+"="+localhost(0))
		}
	}
	return set
}
