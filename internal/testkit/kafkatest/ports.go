package kafkatest

import (
	"net"
	"strconv"

	"github.com/feedbridge/feedbridge/internal/testkit/freeport"
)

// ports are those of the listeners.
type ports struct{ plain, sasl, controller int }

func reservePorts() (p ports, err error) {
	for _, port := range []*int{&p.plain, &p.sasl, &p.controller} {
		if *port, err = freeport.Reserve(); err != nil {
			return ports{}, err
		}
	}
	return p, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
