package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	natssink "github.com/feedbridge/feedbridge/sink/nats"
)

// copyToNATS copies a feed to a subject of NATS.
func copyToNATS(natsURL, feedURL, topic string) error {
	nc, err := nats.Connect(natsURL, nats.Timeout(timeout))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(timeout))
	if err != nil {
		return err
	}
	if err := createStream(js, topic); err != nil {
		return err
	}
	next := joinPages(readPages(feedURL, pagesAhead), natssink.MaxEntities, natssink.MaxBytes)
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox + ".>")
	if err != nil {
		return err
	}
	p := publisher{nc: nc, topic: topic, msg: nats.Msg{Header: nats.Header{}}, inbox: inbox, answers: answers}
	for {
		c, err := next()
		if err != nil || len(c.entities) == 0 {
			return err
		}
		if err := p.publish(c); err != nil {
			return err
		}
	}
}

func createStream(js jetstream.JetStream, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: topic, Subjects: []string{topic, "_feedbridge." + topic},
		AllowBatchPublish: true, AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
	})
	return err
}

// publisher publishes commits as fast batches (ADR-50). It uses one message, with one map, for all
// entities.
type publisher struct {
	nc      *nats.Conn
	topic   string
	msg     nats.Msg
	inbox   string
	answers *nats.Subscription
	sent    int    // entities
	last    uint64 // sequence of the stream
}

// flow is the number of messages after which the server acknowledges.
const flow = 500

// publish publishes the entities of a commit and its checkpoint, and waits until they are stored.
func (p *publisher) publish(c commit) error {
	reply := p.inbox + "." + nuid.Next() + "." + strconv.Itoa(flow) + ".fail."
	set := func(name, value string) {
		if slot := p.msg.Header[name]; slot != nil {
			slot[0] = value
			return
		}
		p.msg.Header[name] = []string{value}
	}
	stored, operation := uint64(0), ".0.$FI"
	p.msg.Subject = p.topic
	for i := range c.entities {
		c.fields(i, set)
		set("Nats-Expected-Last-Sequence", strconv.FormatUint(p.last+uint64(i), 10))
		p.msg.Data, p.msg.Reply = c.entities[i].body, reply+strconv.Itoa(i+1)+operation
		if err := p.nc.PublishMsg(&p.msg); err != nil {
			return err
		}
		for operation = ".1.$FI"; uint64(i) >= stored+2*flow; {
			a, err := p.nextAnswer()
			if err != nil {
				return err
			}
			stored = a.Seq
		}
	}
	n := len(c.entities)
	p.sent += n
	err := p.nc.PublishMsg(&nats.Msg{
		Subject: "_feedbridge." + p.topic, Reply: reply + strconv.Itoa(n+1) + ".2.$FI", Data: encodeCheckpoint(p.sent),
		Header: nats.Header{
			"Nats-Rollup": {"sub"}, "Nats-TTL": {"never"}, "Nats-Expected-Last-Sequence": {strconv.FormatUint(p.last+uint64(n), 10)},
		},
	})
	for err == nil {
		var a answer
		if a, err = p.nextAnswer(); err == nil && a.Type == "" {
			p.last = a.Seq
			if a.Count != n+1 {
				return fmt.Errorf("%d of %d messages are stored", a.Count, n+1)
			}
			return nil
		}
	}
	return err
}

// answer is what the server says of a batch: how far it is stored, or, without a type, its end.
type answer struct {
	Type  string
	Seq   uint64
	Count int
	Error json.RawMessage
}

// nextAnswer waits for an answer that is no error.
func (p *publisher) nextAnswer() (a answer, err error) {
	m, err := p.answers.NextMsg(timeout)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(m.Data, &a); err != nil || a.Error != nil || a.Type == "gap" {
		return a, fmt.Errorf("%s: %w", m.Data, err)
	}
	return a, nil
}
