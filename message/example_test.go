package message_test

import (
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

var order = feed.Entity{
	ID:       "<1@shop>",
	Op:       feed.Put,
	Modified: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	Header: feed.Header{
		{Name: "content-id", Value: "<1@shop>"}, // the feed's case
		{Name: "Content-Type", Value: "application/json"},
		{Name: "Nats-Rollup", Value: "all"}, // a NATS server would purge the stream
	},
	Body: []byte(`{"id": 1}`),
	Page: "https://shop.example/feed/7",
}

// A sink writes these headers, and the body of the entity as it is.
func ExampleHeader() {
	for _, field := range message.Header("orders", order) {
		fmt.Printf("%s: %s\n", field.Name, field.Value)
	}
	// Output:
	// Content-ID: <1@shop>
	// Content-Type: application/json
	// Feedbridge-Header-Nats-Rollup: all
	// Last-Modified: Sun, 01 Mar 2026 12:00:00 GMT
	// Operation-Type: http-equiv=PUT
	// Feedbridge-Operation: PUT
	// Feedbridge-Time: 2026-03-01T12:00:00Z
	// Feedbridge-Feed: orders
	// Feedbridge-Page: https://shop.example/feed/7
	// Feedbridge-Names: content-id Content-Type
}

// Entity is the inverse of Header. The feed's names are restored.
func ExampleEntity() {
	e, err := message.Entity(message.Header("orders", order), order.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.ID, e.Op, e.Modified.Format(time.RFC3339))
	fmt.Println(e.Header[0].Name, e.Header[2].Name)
	// Output:
	// <1@shop> PUT 2026-03-01T12:00:00Z
	// content-id Nats-Rollup
}

// Feeds write operations in several spellings.
func ExampleParseOperation() {
	for _, value := range []string{"http-equiv=PUT", "delete", `"http-equiv=PATCH"`, "POST"} {
		op, ok := message.ParseOperation(value)
		fmt.Printf("%s: %q %v\n", value, op, ok)
	}
	// Output:
	// http-equiv=PUT: "PUT" true
	// delete: "DELETE" true
	// "http-equiv=PATCH": "PATCH" true
	// POST: "" false
}
