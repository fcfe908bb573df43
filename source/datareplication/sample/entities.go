// Package sample makes up the entities of a datareplication feed, for the demo and for examples.
package sample

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// Orders returns entities that could be those of a shop: orders are placed
// (PUT), change their status (PATCH), and some are cancelled (DELETE). Bodies
// are JSON with the order's number at /id. at says when entity i came to be.
func Orders(at func(i int) time.Time) func(i int) feed.Entity {
	return func(i int) feed.Entity {
		event := lives[i%len(lives)]
		order := i/len(lives)*ordersPerRound + event.order
		e := feed.Entity{
			ID:       fmt.Sprintf("order-event-%d@shop.example.com", i),
			Op:       event.op,
			Modified: at(i),
			Header:   ordersHeader,
		}
		id := fmt.Sprintf("A-%06d", 1000+order)
		switch event.op {
		case feed.Put:
			e.Body = newOrder(id, order, e.Modified)
		case feed.Patch, feed.Delete:
			e.Body = fmt.Appendf(nil, `{"id":%q,"status":%q}`, id, event.status)
		}
		return e
	}
}

var ordersHeader = feed.Header{{Name: "Content-Type", Value: "application/json"}}

const ordersPerRound = 4

// lives are the lives of four orders, intertwined. They repeat with the next
// four.
var lives = []struct {
	order  int
	op     feed.Operation
	status string
}{
	{0, feed.Put, "new"},
	{1, feed.Put, "new"},
	{0, feed.Patch, "paid"},
	{2, feed.Put, "new"},
	{1, feed.Patch, "paid"},
	{0, feed.Patch, "shipped"},
	{2, feed.Delete, "cancelled"},
	{3, feed.Put, "new"},
	{1, feed.Patch, "shipped"},
	{3, feed.Patch, "paid"},
	{0, feed.Patch, "delivered"},
	{3, feed.Patch, "shipped"},
}

var (
	customers = []string{"Ada Lovelace", "Grace Hopper", "Alan Turing", "Katherine Johnson", "Edsger Dijkstra", "Barbara Liskov", "Zoë Müller"}
	goods     = []struct {
		name  string
		cents int
	}{
		{"espresso beans, 1 kg", 1890},
		{"tea pot, cast iron", 4250},
		{"mug, blue", 990},
		{"paper filters, 100", 349},
		{"hand grinder", 7900},
	}
)

// newOrder makes up an order. The order's number decides all of it.
func newOrder(id string, order int, at time.Time) []byte {
	dice := rand.New(rand.NewPCG(uint64(order), 0))
	b := fmt.Appendf(nil, `{"id":%q,"status":"new","placed":%q,"customer":%q,"items":[`,
		id, at.UTC().Format(time.RFC3339), customers[dice.IntN(len(customers))])
	total := 0
	for i := range 1 + dice.IntN(3) {
		if i > 0 {
			b = append(b, ',')
		}
		item, count := goods[dice.IntN(len(goods))], 1+dice.IntN(4)
		total += count * item.cents
		b = fmt.Appendf(b, `{"name":%q,"count":%d,"price":%d.%02d}`, item.name, count, item.cents/100, item.cents%100)
	}
	return fmt.Appendf(b, `],"total":%d.%02d,"currency":"EUR"}`, total/100, total%100)
}
