package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Install makes sure that a [Node] can be run without access to the network. If the machine has
// no JDK or no Maven, missing names it; where Kafka is required, that is an error.
func Install() (missing string, err error) {
	_, err = installed()
	if errors.Is(err, errMissing) && !required {
		return err.Error(), nil
	}
	return "", err
}

// Node describes one node of a cluster. The caller runs it.
type Node struct {
	// ID is the node ID, of the broker and of the controller.
	ID int
	// Dir gets server.properties.
	Dir string
	// Store is the directory of the log. Command formats it if it is empty.
	Store string
	// Properties override those of a broker that [Start] runs. Ports, addresses and
	// the quorum have to be among them.
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
	k, err := installed()
	if err != nil {
		return nil, err
	}
	meta := filepath.Join(n.Store, "meta.properties")
	if !exists(meta) {
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
	for name, value := range n.Properties {
		all.properties[name] = value
	}
	file := filepath.Join(n.Dir, "server.properties")
	if err := os.WriteFile(file, []byte(properties(n.Store, ports{}, all)), 0o600); err != nil {
		return nil, err
	}
	flags = append(append(k.archived(), logging...), flags...)
	return k.jvm(context.Background(), flags, "kafka.Kafka", file), nil
}
