package feed_test

import (
	"errors"
	"fmt"

	"github.com/feedbridge/feedbridge/feed"
)

// A source returns entities in batches. The cursor is the position after them.
func ExampleBatch() {
	batch := feed.Batch{
		Entities: []feed.Entity{
			{ID: "<1@shop>", Op: feed.Put, Body: []byte(`{"id": 1}`)},
			{ID: "<2@shop>", Op: feed.Delete},
		},
		Cursor: feed.Cursor("page 7, entity 2"),
		More:   true,
	}
	for _, e := range batch.Entities {
		fmt.Println(e.Op, e.ID, len(e.Body))
	}
	fmt.Printf("continue from %q\n", batch.Cursor)
	// Output:
	// PUT <1@shop> 9
	// DELETE <2@shop> 0
	// continue from "page 7, entity 2"
}

// Names are compared without case, and the first field of a name counts.
func ExampleHeader_Get() {
	header := feed.Header{{Name: "content-id", Value: "<1@shop>"}, {Name: "Content-ID", Value: "<2@shop>"}}
	id, ok := header.Get("Content-ID")
	fmt.Println(id, ok)
	// Output: <1@shop> true
}

// A violation that reading cannot continue after is a permanent error.
func ExamplePermanent() {
	err := feed.Permanent(&feed.Violation{Kind: "loop", Page: "https://shop.example/7", Detail: "the links lead in a circle"})

	fmt.Println(err)
	fmt.Println(errors.Is(err, feed.ErrPermanent))
	violation, ok := errors.AsType[*feed.Violation](err)
	fmt.Println(ok, violation.Kind)
	// Output:
	// the links lead in a circle (loop on https://shop.example/7)
	// true
	// true loop
}
