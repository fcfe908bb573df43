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
	p := publisher{nc: nc, topic: topic, msg: nats.Msg{Subject: topic, Header: nats.Header{}}}
	var sent int
	var last uint64
	staged, err := p.stage(next())
	for err == nil && staged.n > 0 {
		sent += staged.n
		var waiting *answer
		if waiting, err = p.commit(staged, sent, last); err != nil {
			return err
		}
		n := staged.n
		// The server gets the next batch while it stores this one.
		if staged, err = p.stage(next()); err == nil {
			last, err = waiting.sequence(n + 1)
		}
	}
	return err
}

func createStream(js jetstream.JetStream, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: topic, Subjects: []string{topic, "_feedbridge." + topic},
		AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
	})
	return err
}

// publisher publishes batches. It uses one message, with one map, for all entities.
type publisher struct {
	nc    *nats.Conn
	topic string
	msg   nats.Msg
}

type batch struct {
	id string
	n  int // number of entities
}

// stage sends the entities of a commit.
func (p *publisher) stage(c commit, err error) (batch, error) {
	b := batch{nuid.Next(), len(c.entities)}
	set := func(name, value string) {
		if slot := p.msg.Header[name]; slot != nil {
			slot[0] = value
			return
		}
		p.msg.Header[name] = []string{value}
	}
	for i := 0; err == nil && i < b.n; i++ {
		c.fields(i, set)
		set("Nats-Batch-Id", b.id)
		set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		p.msg.Data = c.entities[i].body
		err = p.nc.PublishMsg(&p.msg)
	}
	return b, err
}

// answer is an answer that the server will send.
type answer struct{ sub *nats.Subscription }

// commit sends the last message of a batch.
func (p *publisher) commit(b batch, sent int, last uint64) (*answer, error) {
	inbox := nats.NewInbox()
	sub, err := p.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	err = p.nc.PublishMsg(&nats.Msg{
		Subject: "_feedbridge." + p.topic, Reply: inbox, Data: encodeCheckpoint(sent),
		Header: nats.Header{
			"Nats-Batch-Id": {b.id}, "Nats-Batch-Sequence": {strconv.Itoa(b.n + 1)}, "Nats-Batch-Commit": {"1"},
			"Nats-Rollup": {"sub"}, "Nats-TTL": {"never"}, "Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(last, 10)},
		},
	})
	return &answer{sub}, err
}

// sequence waits for the answer and returns the sequence of the checkpoint.
func (a *answer) sequence(count int) (uint64, error) {
	defer func() { _ = a.sub.Unsubscribe() }()
	reply, err := a.sub.NextMsg(timeout)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Seq   uint64
		Count int
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Count != count {
		return 0, fmt.Errorf("%s: %w", reply.Data, err)
	}
	return ack.Seq, nil
}
