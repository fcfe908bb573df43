//go:build chaos && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// startTimeout limits the start of a server on a busy machine.
const startTimeout = 2 * time.Minute

// stopTimeout limits the stop of a server. One whose quorum is away may wait for it.
const stopTimeout = 15 * time.Second

// message is a message as a plain consumer reads it: the Content-ID, the body and, of a dead
// letter, the reason.
type message struct{ id, body, dead string }

// messageLimit is the largest message that the buses take, in bytes, on Kafka only in the topics
// of feeds with dead letters.
const messageLimit = 16 << 10

const (
	contentIDHeader  = "Content-ID"
	deadReasonHeader = "Feedbridge-Dead-Reason"
)

// bus is a cluster of servers.
type bus interface {
	// servers returns the nodes, which are not started.
	servers() []*node
	// configure returns the part of feedbridge's configuration for the bus, and configureTopic the one
	// for the topic of a feed.
	configure() string
	configureTopic(f *feed) string
	// leaders returns the nodes that lead a topic and its checkpoints, and controller
	// the one that leads the cluster.
	leaders(ctx context.Context, topic string) ([]*node, error)
	controller(ctx context.Context) (*node, error)
	// tip returns the number of entities in a topic and the Content-ID of the last.
	// A topic that is missing has none.
	tip(ctx context.Context, topic string) (n int, last string, err error)
	// read returns the whole topic, or all of its dead letters.
	read(ctx context.Context, topic string, dead bool) ([]message, error)
	// remove deletes a topic that is not published any more.
	remove(ctx context.Context, topic string) error
	close()
}

// node is one server of a cluster. One goroutine at a time uses it.
type node struct {
	place
	name  string
	dir   string // has the configuration and the log
	store string // a tmpfs where the machine allows it
	// command returns the command that runs the server, and ready returns nil if
	// the server serves its clients.
	command func() (*exec.Cmd, error)
	ready   func(ctx context.Context) error

	run *process
	up  atomic.Bool // it runs, is not frozen, can be reached and has space
}

// newNode returns a node of a scenario with a store of size bytes.
func newNode(scenario string, id int, size int64) (*node, error) {
	p, err := newPlace()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("node%d", id)
	n := &node{place: p, name: name, dir: chaosDir(scenario, name)}
	n.store = filepath.Join(n.dir, "store")
	if err := os.MkdirAll(n.store, 0o700); err != nil {
		return nil, err
	}
	if machine.mounts {
		err = syscall.Mount("tmpfs", n.store, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	}
	return n, err
}

// start runs the server and returns when it serves its clients.
func (n *node) start(ctx context.Context) error {
	cmd, err := n.command()
	if err != nil {
		return err
	}
	if n.run, err = startLogged(n.place.command(cmd), n.log()); err != nil {
		return err
	}
	return n.waitReady(ctx)
}

// startAll starts several servers at once.
func startAll(ctx context.Context, nodes []*node) error {
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { errs[i] = n.start(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (n *node) log() string { return filepath.Join(n.dir, "log") }

// waitReady waits until the server serves its clients.
func (n *node) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := n.ready(attempt)
		cancel()
		if err == nil {
			n.up.Store(true)
			return nil
		}
		if n.run.ended() {
			return fmt.Errorf("%s ended by itself: %w; see %s", n.name, n.run.err, n.log())
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%s does not get ready; see %s: %w", n.name, n.log(), err)
		}
	}
}

func (n *node) kill() {
	n.up.Store(false)
	n.run.kill()
}

// stop ends the server by SIGTERM, or after stopTimeout by SIGKILL.
func (n *node) stop() {
	n.up.Store(false)
	n.run.signal(syscall.SIGTERM)
	select {
	case <-n.run.done:
	case <-time.After(stopTimeout):
		n.run.kill()
	}
}

func (n *node) freeze() {
	n.up.Store(false)
	n.run.signal(syscall.SIGSTOP)
}

func (n *node) thaw(ctx context.Context) error {
	n.run.signal(syscall.SIGCONT)
	return n.waitReady(ctx)
}

// saveAll copies the stores of nodes as they are at one moment to new directories.
// Servers that are killed at this moment would find the same.
func saveAll(nodes []*node) (dirs []string, err error) {
	for _, n := range nodes {
		n.run.signal(syscall.SIGSTOP)
		defer n.run.signal(syscall.SIGCONT)
	}
	for _, n := range nodes {
		dir, err := os.MkdirTemp(n.dir, "saved-")
		if err == nil {
			err = copyTree(dir, n.store)
		}
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// restore moves a saved store into the place of that of a server that does not run.
func (n *node) restore(dir string) error {
	files, err := filepath.Glob(filepath.Join(n.store, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.RemoveAll(file); err != nil {
			return err
		}
	}
	if err := copyTree(n.store, dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// copyTree copies the files of a directory. cp keeps holes, which os.CopyFS fills:
// Kafka's indexes consist of them.
func copyTree(to, from string) error {
	out, err := exec.Command("cp", "-a", "--sparse=always", from+"/.", to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

// fill takes all space that the store has left, and returns what frees it again.
func (n *node) fill() (free func() error, err error) {
	n.up.Store(false)
	path := filepath.Join(n.store, "filler")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing in it counts
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		_ = os.Remove(path)
		return nil, err
	}
	return func() error { return os.Remove(path) }, nil
}

// keepStore makes the store outlive the namespace, for a search for the cause
// of a defect.
func (n *node) keepStore() error {
	dir := filepath.Join(n.dir, "store-at-the-end")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return copyTree(dir, n.store)
}

// pause waits, and returns an error if ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
