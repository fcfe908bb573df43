package nats_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// A stock server writes to the disk every two minutes, so a power cut may leave
// the first half of a batch in its log, without the checkpoint that was last in
// it. The entities of the batch are read again then, and those that are there
// must be known.
func TestEntitiesBehindTheCheckpointAreKnown(t *testing.T) {
	const whole, torn = 3, 10
	dir := t.TempDir()
	first := runServer(t, &server.Options{JetStream: true, StoreDir: dir})
	s := connect(t, nats.Config{URL: first.ClientURL()}).Sink(orders())
	resume(t, s)
	commit(t, s, 0, whole)
	before := size(t, block(t, dir))
	commit(t, s, whole, whole+torn)
	after := size(t, block(t, dir))

	// The store as it would be after the cut: half of the batch is there, and
	// the index, which the server rebuilds, is not.
	cut := t.TempDir()
	if err := os.CopyFS(cut, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(block(t, cut), before+(after-before)/2); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(block(t, cut)), "index.db")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	second := runServer(t, &server.Options{JetStream: true, StoreDir: cut})
	s = connect(t, nats.Config{URL: second.ClientURL()}).Sink(orders())
	if cp := resume(t, s); cp.Count != whole {
		t.Fatalf("the checkpoint counts %d entities, want the %d of the batch that is whole", cp.Count, whole)
	}
	survivors := 0
	for _, e := range sinktest.Entities(whole, torn) {
		if !s.IDs().Add(e.ID) {
			survivors++
		}
	}
	if survivors == 0 || survivors == torn {
		t.Fatalf("%d of the %d entities of the batch are known: it was not cut in half, or nobody noticed", survivors, torn)
	}
	// The entities that pass the gate complete the topic.
	commit(t, s, whole+survivors, whole+torn)
	wantFeed(t, s, whole+torn)
}

// block is the file of the stream's messages in a server's store.
func block(t *testing.T, dir string) string {
	t.Helper()
	var found string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".blk") && strings.Contains(path, string(filepath.Separator)+"msgs"+string(filepath.Separator)) {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no block of messages in %s: %v", dir, err)
	}
	return found
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
