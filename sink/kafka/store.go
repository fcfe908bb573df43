package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
)

// The checkpoint topic, if this program creates it. It is compacted, but for
// its newest segment, and what a feed has committed within a month has to be
// read when a process starts: so segments are small, and the markers of
// transactions, one for every commit, go soon.
const checkpointPartitions = 12

var checkpointConfig = []string{
	"cleanup.policy=compact",
	"segment.bytes=4194304",
	"min.cleanable.dirty.ratio=0.1",
	"delete.retention.ms=600000",
}

// store reads the checkpoint topic, for all sinks of a connection: they would
// each read the same partitions.
type store struct {
	conn *Conn

	mu         sync.Mutex
	checked    time.Time // when the topic and the cluster were last found fit
	fit        kadm.TopicID
	partitions map[int32]*shelf
}

// A shelf is a partition of the checkpoint topic, as far as it has been read.
type shelf struct {
	lock chan struct{} // held while reading
	id   kadm.TopicID
	next int64
	last map[string]stored
}

// stored is a checkpoint as it lies in the topic.
type stored struct {
	offset int64
	data   []byte
	topic  string // the id of the feed's topic, empty if it is not known
	// by are the transactions that committed it and those before it, the newest last.
	by []committer
}

// A committer is a transaction of version 2, as a partition knows it: each has an
// epoch of its own.
type committer struct {
	producer int64
	epoch    int16
}

// remembered is how many transactions of a feed are remembered: each of its two ids
// may have one that hangs, the newest.
const remembered = 4

// place is where the checkpoints of a topic lie: all in one partition, so that
// they can be seen together.
type place struct {
	id        kadm.TopicID
	partition int32
}

func newStore(c *Conn) *store { return &store{conn: c, partitions: map[int32]*shelf{}} }

// recheck is how long the checkpoint topic and the cluster are trusted to stay as
// they were found.
const recheck = time.Minute

// find returns where the checkpoints of t lie. It creates the checkpoint
// topic if it is missing and create says so; if not it returns
// [kerr.UnknownTopicOrPartition].
func (st *store) find(ctx context.Context, t Topic, create bool) (place, error) {
	c := st.conn
	d, err := c.describe(ctx, c.cfg.Checkpoints)
	if errors.Is(err, kerr.UnknownTopicOrPartition) && create {
		d, err = c.create(ctx, c.cfg.Checkpoints, checkpointPartitions, t.Replication, checkpointConfig)
	}
	if err != nil {
		return place{}, fmt.Errorf("topic %q for checkpoints: %w", c.cfg.Checkpoints, err)
	}
	if err := st.check(ctx, d); err != nil {
		return place{}, err
	}
	return place{d.id, partitionOf(t.Name, len(d.leaders))}, nil
}

// check says what makes the topic or the cluster unfit.
func (st *store) check(ctx context.Context, d description) error {
	st.mu.Lock()
	known := st.fit == d.id && time.Since(st.checked) < recheck
	st.mu.Unlock()
	if known {
		return nil
	}
	c := st.conn
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	if err := c.checkVersions(bounded); err != nil {
		return causeOf(bounded, err)
	}
	if err := c.mayUse(d); err != nil {
		return err
	}
	config, err := c.config(ctx, d.name)
	if err != nil {
		return err
	}
	if policy, ok := config["cleanup.policy"]; ok && policy != "compact" {
		return feed.Permanent(fmt.Errorf("topic %q for checkpoints has cleanup.policy=%s, by which it would lose them; if it has nothing else, run "+
			"'kafka-configs.sh --bootstrap-server %s --alter --topic %[1]s --add-config cleanup.policy=compact', and if it has, name another one in checkpoints",
			d.name, policy, c.cfg.Brokers[0]))
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.fit, st.checked = d.id, time.Now()
	return nil
}

// read returns the checkpoints of a topic, by feed, as they are committed up to
// an offset of the partition, or further.
func (st *store) read(ctx context.Context, at place, to int64, topic string) (map[string]stored, error) {
	sh := st.shelf(at.partition)
	select {
	case sh.lock <- struct{}{}:
		defer func() { <-sh.lock }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c := st.conn
	if sh.id != at.id {
		*sh = shelf{lock: sh.lock, id: at.id}
	}
	if to < sh.next {
		// Another sink has read further, or the log has lost its end.
		now, err := c.offsets(ctx, c.cfg.Checkpoints, []int32{at.partition}, stable)
		if err != nil {
			return nil, err
		}
		if now[0] < sh.next {
			*sh = shelf{lock: sh.lock, id: at.id}
			to = now[0]
		}
	}
	err := sh.readOn(ctx, c, at.partition, to)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		*sh = shelf{lock: sh.lock, id: at.id}
		err = sh.readOn(ctx, c, at.partition, to)
	}
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", c.cfg.Checkpoints, err)
	}
	feeds := map[string]stored{}
	for key, s := range sh.last {
		if name, ok := strings.CutPrefix(key, topic+"/"); ok {
			feeds[name] = s
		}
	}
	return feeds, nil
}

func (st *store) shelf(partition int32) *shelf {
	st.mu.Lock()
	defer st.mu.Unlock()
	sh := st.partitions[partition]
	if sh == nil {
		sh = &shelf{lock: make(chan struct{}, 1)}
		st.partitions[partition] = sh
	}
	return sh
}

// readOn reads up to an offset. What it has seen when it fails stays.
func (sh *shelf) readOn(ctx context.Context, c *Conn, partition int32, to int64) error {
	if sh.last == nil {
		start, err := c.offsets(ctx, c.cfg.Checkpoints, []int32{partition}, first)
		if err != nil {
			return err
		}
		sh.last, sh.next = map[string]stored{}, start[0]
	}
	if to <= sh.next {
		return nil
	}
	last := maps.Clone(sh.last)
	err := c.scan(ctx, c.cfg.Checkpoints, partition, sh.next, to, func(r *kgo.Record) (bool, error) {
		if r.Value == nil {
			delete(last, string(r.Key))
			return true, nil
		}
		s := stored{offset: r.Offset, data: bytes.Clone(r.Value), by: last[string(r.Key)].by}
		s.by = append(slices.Clone(s.by[max(0, len(s.by)+1-remembered):]), committer{r.ProducerID, r.ProducerEpoch})
		for _, h := range r.Headers {
			if h.Key == topicID {
				s.topic = string(h.Value)
			}
		}
		last[string(r.Key)] = s
		return true, nil
	})
	if err != nil {
		return err
	}
	sh.last, sh.next = last, to
	return nil
}
