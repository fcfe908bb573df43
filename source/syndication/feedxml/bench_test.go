package feedxml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mmcdole/gofeed"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// benchDocument is an Atom document of about size bytes, with entries of 1 to
// 4 KB as blogs and business feeds have them.
func benchDocument(size int) (doc []byte, entries int) {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0" xmlns:o="urn:example:orders" xml:lang="en">
  <id>urn:uuid:60a76c80-d399-11d9-b93c-0003939e0af6</id><title>Orders</title><updated>2026-01-01T00:00:00Z</updated>
  <link rel="self" href="https://shop.example.com/orders"/><fh:complete/>
`)
	const sentence = "A thing of beauty is a joy for ever: its loveliness increases; it will never pass into nothingness. "
	for b.Len() < size {
		fmt.Fprintf(&b, `  <entry>
    <title>Order %[1]d</title>
    <link rel="alternate" type="text/html" href="https://shop.example.com/orders/%[1]d"/>
    <link rel="edit" href="https://shop.example.com/orders/%[1]d/edit"/>
    <id>urn:uuid:1225c695-cfb8-4ebb-aaaa-%012[1]d</id>
    <updated>2026-01-01T%02[2]d:%02[3]d:%02[4]dZ</updated>
    <author><name>Jane Doe</name><email>jane@example.com</email></author>
    <category term="order" scheme="https://shop.example.com/kinds"/>
    <o:total currency="EUR">129.95</o:total>
    <content type="html">%[5]s</content>
  </entry>
`, entries, entries/3600%24, entries/60%60, entries%60, strings.Repeat("&lt;p&gt;"+sentence+"&lt;/p&gt;\n", 3+entries%25))
		entries++
	}
	b.WriteString("</feed>\n")
	return b.Bytes(), entries
}

// BenchmarkDocument reads a document of 40 MB: every entry's id, update time,
// links, standalone body and hash. Compare with the other readers of one run:
//
//	go test -run '^$' -bench Document -count 5 ./source/syndication/feedxml
//
// The heap is as large as that of a daemon that reads ahead. With an empty heap the
// garbage collector would run every few entries and take most of the time.
func BenchmarkDocument(b *testing.B) {
	doc, entries := benchDocument(40 << 20) // which is a heap already
	b.Run("feedbridge", func(b *testing.B) { benchReader(b, doc, entries, Options{}) })
	b.Run("encoding-xml", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		b.ReportAllocs()
		for b.Loop() {
			if n := len(oracle(b, doc)); n != entries {
				b.Fatalf("got %d entries", n)
			}
		}
	})
}

func benchReader(b *testing.B, doc []byte, entries int, opts Options) {
	b.Helper()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(doc), opts)
		n := 0
		for {
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must.Succeed(b, err)
			if e.ID == "" || e.Updated.Time.IsZero() {
				b.Fatal(e.ID, e.Updated)
			}
			n++
		}
		if n != entries {
			b.Fatalf("got %d entries", n)
		}
	}
}

// BenchmarkGofeed reads what [BenchmarkDocument] does.
func BenchmarkGofeed(b *testing.B) {
	doc, entries := benchDocument(40 << 20)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		read, err := gofeed.NewParser().Parse(bytes.NewReader(doc))
		if err != nil || len(read.Items) != entries {
			b.Fatal(err)
		}
	}
}
