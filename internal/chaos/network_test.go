//go:build chaos && linux

package chaos

import (
	"fmt"
	"os/exec"
	"sync/atomic"
)

// The network of the test is a bridge in the network namespace of this process,
// with a network namespace behind it for each node. The copies and the test itself
// are at the bridge.
const (
	bridgeDevice = "chaos"
	hubAddress   = "10.77.0.1"
)

// nodesMade counts the addresses that were given away.
var nodesMade atomic.Int32

func startNetwork() error {
	if err := ip("link", "add", bridgeDevice, "type", "bridge"); err != nil {
		return err
	}
	if err := ip("addr", "add", hubAddress+"/16", "dev", bridgeDevice); err != nil {
		return err
	}
	return ip("link", "set", bridgeDevice, "up")
}

// place is the address of a node, and the network namespace that has it. Without namespaces
// it is 127.0.0.1.
type place struct {
	host  string
	netns string // empty for that of this process
}

func newPlace() (place, error) {
	if !machine.network {
		return place{host: "127.0.0.1"}, nil
	}
	n := nodesMade.Add(1)
	p := place{host: fmt.Sprintf("10.77.1.%d", n), netns: fmt.Sprintf("node%d", n)}
	for _, args := range [][]string{
		{"netns", "add", p.netns},
		{"link", "add", p.link(), "type", "veth", "peer", "name", "eth0", "netns", p.netns},
		{"link", "set", p.link(), "master", bridgeDevice, "up"},
		{"-n", p.netns, "link", "set", "lo", "up"},
		{"-n", p.netns, "addr", "add", p.host + "/16", "dev", "eth0"},
		{"-n", p.netns, "link", "set", "eth0", "up"},
	} {
		if err := ip(args...); err != nil {
			return place{}, err
		}
	}
	return p, nil
}

// link is the end of the node's cable at the bridge.
func (p place) link() string { return p.netns + "up" }

// command makes a command run at the place.
func (p place) command(cmd *exec.Cmd) *exec.Cmd {
	if p.netns == "" {
		return cmd
	}
	// ip executes the command in its own process, so signals reach the server.
	in := exec.Command("ip", append([]string{"netns", "exec", p.netns, cmd.Path}, cmd.Args[1:]...)...)
	in.Env, in.Dir = cmd.Env, cmd.Dir
	return in
}

// unplug cuts the place off from everyone.
func (p place) unplug() error { return ip("link", "set", p.link(), "down") }
func (p place) plug() error   { return ip("link", "set", p.link(), "up") }

// block drops all packets between two places. Others still reach both.
func (p place) block(other place) error {
	return ip("-n", p.netns, "route", "add", "blackhole", other.host+"/32")
}

func (p place) unblock(other place) error {
	return ip("-n", p.netns, "route", "del", "blackhole", other.host+"/32")
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %q: %w: %s", args, err, out)
	}
	return nil
}
