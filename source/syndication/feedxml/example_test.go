package feedxml_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

func ExampleReader() {
	const document = `<feed xmlns="http://www.w3.org/2005/Atom">
		<title>Orders</title>
		<link rel="next" href="orders?page=2"/>
		<entry><id>urn:order:2</id><updated>2026-01-02T00:00:00Z</updated><title>Tea & milk</title></entry>
		<entry><id>urn:order:1</id><updated>2026-01-01T00:00:00Z</updated><title>Coffee</title></entry>
	</feed>`
	r := feedxml.NewReader(strings.NewReader(document), feedxml.Options{URL: "https://shop.example.com/orders", Lenient: true})
	for {
		entry, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(entry.ID, entry.Updated.Raw)
		fmt.Println(string(entry.Body))
	}
	next, _ := r.Meta().Link("next")
	fmt.Println(next.Href)
	fmt.Println(r.Faults().Count, "fault:", r.Faults().First())
	// Output:
	// urn:order:2 2026-01-02T00:00:00Z
	// <entry xmlns="http://www.w3.org/2005/Atom"><id>urn:order:2</id><updated>2026-01-02T00:00:00Z</updated><title>Tea &amp; milk</title></entry>
	// urn:order:1 2026-01-01T00:00:00Z
	// <entry xmlns="http://www.w3.org/2005/Atom"><id>urn:order:1</id><updated>2026-01-01T00:00:00Z</updated><title>Coffee</title></entry>
	// https://shop.example.com/orders?page=2
	// 1 fault: line 4, column 80: there is a & that is no reference, near "/updated><title>Tea & milk</title></entry> <entry><id>urn:o…"
}
