package kafkatest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// Install makes sure that a [Node] of a version can be run without access to the network. If the
// machine has no JDK or no Maven, missing names it; where Kafka is required, that is an error.
func Install(v string) (missing string, err error) {
	_, err = installed(cmp.Or(v, version))
	if errors.Is(err, errMissing) && !required {
		return err.Error(), nil
	}
	return "", err
}

// Node describes one node of a cluster. The caller runs it.
type Node struct {
	// Version is the version of Kafka, 2.8 or newer; empty for that of testdata/pom.xml.
	Version string
	// ZooKeeper is the address of a [ZooKeeper] for a broker, which versions before 3.3 need. If it is
	// empty the node is a controller, too.
	ZooKeeper string
	// ID is the node ID, of the broker and of the controller.
	ID int
	// Dir gets server.properties.
	Dir string
	// Store is the directory of the log. Command formats it if it is empty.
	Store string
	// Properties override those of a broker that [Start] runs; an empty value removes one. Ports,
	// addresses and the quorum have to be among them.
	Properties map[string]string
}

// What differs between the stores of two nodes.
var (
	nodeID      = regexp.MustCompile(`(?m)^node\.id=.*$`)
	directoryID = regexp.MustCompile(`(?m)^directory\.id=.*$`)
)

// Command returns a command that runs the node, with more flags for its JVM. All
// nodes have the same cluster ID.
func (n Node) Command(flags ...string) (*exec.Cmd, error) {
	k, err := installed(cmp.Or(n.Version, version))
	if err != nil {
		return nil, err
	}
	meta := filepath.Join(n.Store, "meta.properties")
	if n.ZooKeeper == "" && !exists(meta) {
		if err := os.CopyFS(n.Store, os.DirFS(k.store)); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(meta)
		if err != nil {
			return nil, err
		}
		id := make([]byte, 16)
		_, _ = rand.Read(id) // it never fails
		text = nodeID.ReplaceAll(text, fmt.Appendf(nil, "node.id=%d", n.ID))
		text = directoryID.ReplaceAll(text, fmt.Appendf(nil, "directory.id=%s", base64.RawURLEncoding.EncodeToString(id)))
		if err := os.WriteFile(meta, text, 0o600); err != nil {
			return nil, err
		}
	}
	all := settings{properties: map[string]string{"node.id": fmt.Sprint(n.ID)}}
	maps.Copy(all.properties, n.Properties)
	if n.ZooKeeper != "" {
		maps.Copy(all.properties, map[string]string{
			"zookeeper.connect": n.ZooKeeper, "broker.id": fmt.Sprint(n.ID),
			"process.roles": "", "node.id": "", "controller.quorum.voters": "", "controller.listener.names": "",
		})
	}
	file := filepath.Join(n.Dir, "server.properties")
	if err := os.WriteFile(file, []byte(properties(n.Store, ports{}, all)), 0o600); err != nil {
		return nil, err
	}
	flags = append(append(k.archived(), logging...), flags...)
	return k.jvm(context.Background(), flags, "kafka.Kafka", file), nil
}

// ZooKeeper returns a command that runs a ZooKeeper of the release that a version of Kafka comes
// with, before 4.0. It serves an address and stores its data in dir.
func ZooKeeper(version, address, dir string) (*exec.Cmd, error) {
	k, err := installed(version)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "zookeeper.properties")
	text := fmt.Sprintf("dataDir=%s\nclientPortAddress=%s\nclientPort=%s\ntickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n", dir, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	flags := append(slices.Clone(logging), "-Xmx128m", "-Dzookeeper.jmx.log4j.disable=true")
	return k.jvm(context.Background(), flags, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file), nil
}
