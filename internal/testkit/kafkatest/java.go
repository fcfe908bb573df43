package kafkatest

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// javaTimeout limits one run of a Java program.
const javaTimeout = 5 * time.Minute

//go:embed testdata/*.java
var javaSources embed.FS

// Record is a record as the Java consumer returns it.
type Record struct {
	Partition int32
	Offset    int64
	Key       []byte // nil if there is none
	Value     []byte // nil in a tombstone
	Headers   []Header
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// ReadJava reads a topic by the Java consumer with isolation.level=read_committed,
// from its start to the last stable offset of each partition. The records are
// sorted by partition and offset.
func ReadJava(t testing.TB, b *Broker, topic string) []Record {
	t.Helper()
	var records []Record
	for line := range bytes.Lines(runJava(t, b.kit, "Read.java", nil, b.Addr(), topic)) {
		var r struct {
			Record
			Headers []struct{ Key, Value []byte }
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("Read.java printed %q: %v", line, err)
		}
		for _, h := range r.Headers {
			r.Record.Headers = append(r.Record.Headers, Header{Key: string(h.Key), Value: h.Value})
		}
		records = append(records, r.Record)
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records
}

// JavaPartitions returns for each key the partition of n where the Java producer
// puts it.
func JavaPartitions(t testing.TB, keys []string, n int) []int32 {
	t.Helper()
	k, err := installed(version)
	if err != nil {
		giveUp(t, err)
	}
	var in strings.Builder
	for _, key := range keys {
		in.WriteString(base64.StdEncoding.EncodeToString([]byte(key)) + "\n")
	}
	out := runJava(t, k, "Partition.java", strings.NewReader(in.String()), strconv.Itoa(n))
	var partitions []int32
	for _, field := range strings.Fields(string(out)) {
		p, err := strconv.ParseInt(field, 10, 32)
		if err != nil {
			t.Fatalf("Partition.java printed %q: %v", out, err)
		}
		partitions = append(partitions, int32(p))
	}
	if len(partitions) != len(keys) {
		t.Fatalf("Partition.java printed %d partitions for %d keys", len(partitions), len(keys))
	}
	return partitions
}

// runJava runs one of the programs in testdata and returns its output.
func runJava(t testing.TB, k kit, program string, stdin io.Reader, args ...string) []byte {
	t.Helper()
	source, err := javaSources.ReadFile("testdata/" + program)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), program)
	if err := os.WriteFile(file, source, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), javaTimeout)
	defer cancel()
	flags := append(k.archived(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
	cmd := k.jvm(ctx, flags, append([]string{file}, args...)...)
	cmd.Stdin = stdin
	out, err := run(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
