package kafkatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// ports are those of the listeners.
type ports struct{ plain, sasl, controller int }

// Below the ports that Linux gives to outgoing connections. A client that tries
// to reach a broker that is down would now and then be given the broker's port as
// its own, and be connected to itself, and the broker could not come back.
const firstPort, endPort = 25000, 32768

func freePorts(ctx context.Context) (ports, error) {
	var free []int
	for range 1000 {
		port := firstPort + rand.IntN(endPort-firstPort)
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address(port))
		if err != nil {
			continue
		}
		// The listener stays open meanwhile, so that no port is found twice.
		defer l.Close()
		if free = append(free, port); len(free) == 3 {
			return ports{plain: free[0], sasl: free[1], controller: free[2]}, nil
		}
	}
	return ports{}, fmt.Errorf("no free ports from %d to %d", firstPort, endPort-1)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
