package nats_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// The account maps the topic's subject, or some of its messages, to another subject of the stream. The
// server acknowledges the batch.
func TestSubjectMappingMovesEntities(t *testing.T) {
	t.Parallel()
	const n = 500
	topic := orders().Subject
	for name, test := range map[string]struct {
		weight uint8 // of the other subject
		before int   // entities that are committed before there is a mapping
		// commits makes the commits that follow, and returns the error of the last one.
		commits func(t *testing.T, s *nats.Sink) error
		lasts   bool // Resume returns the error until a person moves the checkpoint
	}{
		"all, in the first batch of a session": {100, 0, func(t *testing.T, s *nats.Sink) error {
			return s.Commit(t.Context(), sinktest.Entities(0, n), sinktest.At(n))
		}, true},
		"a part, in the first batch of a session": {27, 0, func(t *testing.T, s *nats.Sink) error {
			return s.Commit(t.Context(), sinktest.Entities(0, n), sinktest.At(n))
		}, true},
		"all, later": {100, 3, func(t *testing.T, s *nats.Sink) error {
			commit(t, s, 3, n)
			return s.Commit(t.Context(), sinktest.Entities(n, 1), sinktest.At(n+1))
		}, false},
		"all, and a checkpoint without entities follows": {100, 3, func(t *testing.T, s *nats.Sink) error {
			commit(t, s, 3, n)
			commit(t, s, n, n)
			return s.Commit(t.Context(), sinktest.Entities(n, 1), sinktest.At(n+1))
		}, false},
		"all, and a checkpoint without entities follows, and the process starts again": {100, 3, func(t *testing.T, s *nats.Sink) error {
			commit(t, s, 3, n)
			commit(t, s, n, n)
			_, err := s.Log().Conn().Sink(orders()).Resume(t.Context())
			return err
		}, false},
		"all, and the process starts again": {100, 3, func(t *testing.T, s *nats.Sink) error {
			commit(t, s, 3, n)
			_, err := s.Log().Conn().Sink(orders()).Resume(t.Context())
			return err
		}, false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			running := runServer(t, &server.Options{JetStream: true})
			config := fitting()
			config.Subjects = append(config.Subjects, "elsewhere")
			createStream(t, admin(t, running.ClientURL()), config)
			s := connect(t, nats.Config{URL: running.ClientURL()}).Sink(orders())
			resume(t, s)
			if test.before > 0 {
				commit(t, s, 0, test.before)
			}
			account := running.GlobalAccount()
			must.Succeed(t, account.AddWeightedMappings(topic, server.NewMapDest("elsewhere", test.weight), server.NewMapDest(topic, 100-test.weight)))
			want := []string{"for shop.orders was stored on the subject elsewhere", "remove the mapping", "'feedbridge checkpoint set orders'"}
			wantError(t, test.commits(t, s), true, nil, want...)
			account.RemoveMapping(topic)
			if test.lasts {
				_, err := s.Resume(t.Context())
				wantError(t, err, true, nil, want...)
			}
			move(t, s, 0)
			resumeAndCommit(t, s, 0, n)
		})
	}
}

// In a stream of several topics a fast batch has no fence on the topic's subject.
func TestSubjectMappingMovesEntitiesOfFastBatches(t *testing.T) {
	t.Parallel()
	topic := orders().Subject
	for _, weight := range []uint8{100, 40} {
		for _, test := range []struct{ again, first bool }{{}, {again: true}, {first: true}, {true, true}} {
			again, first := test.again, test.first
			parallel.Run(t, fmt.Sprintf("%d%% of them, the process starts again: %v, it begins after a resume: %v", weight, again, first), func(t *testing.T) {
				running := runServer(t, &server.Options{JetStream: true})
				fastStream(t, running.ClientURL(), []string{"elsewhere"})
				s := connect(t, nats.Config{URL: running.ClientURL()}).Sink(orders())
				resumeAndCommit(t, s, 0, 3)
				commit(t, s, 3, 6)
				if first {
					resume(t, s) // so that the next commit is an atomic batch, and not the first one of the connection
				}
				account := running.GlobalAccount()
				must.Succeed(t, account.AddWeightedMappings(topic, server.NewMapDest("elsewhere", weight), server.NewMapDest(topic, 100-weight)))
				var err error
				for i := 6; i < 200 && err == nil; i++ { // a part may stay for some commits
					err = s.Commit(t.Context(), sinktest.Entities(i, 1), sinktest.At(i+1))
				}
				if again {
					overwrite := func(old checkpoint.Checkpoint) checkpoint.Checkpoint { return old }
					must.Succeed(t, s.Log().Conn().Sink(orders()).Overwrite(t.Context(), overwrite))
					_, err = s.Log().Conn().Sink(orders()).Resume(t.Context())
				}
				wantError(t, err, true, nil, "for shop.orders was stored on the subject elsewhere", "remove the mapping", "'feedbridge checkpoint set orders'")
				account.RemoveMapping(topic)
				_, err = s.Resume(t.Context())
				wantError(t, err, true, nil, "for shop.orders was stored on the subject elsewhere")
			})
		}
	}
}

// A stream of one topic gets another subject, to which the account maps the topic's, while a copy runs.
func TestSubjectMappingToASubjectThatTheStreamGets(t *testing.T) {
	t.Parallel()
	running := runServer(t, &server.Options{JetStream: true})
	js := fastStream(t, running.ClientURL(), nil)
	s := connect(t, nats.Config{URL: running.ClientURL()}).Sink(orders())
	resumeAndCommit(t, s, 0, 3)
	commit(t, s, 3, 6)
	stream := ordersStream(t, js)
	config := stream.CachedInfo().Config
	config.Subjects = append(config.Subjects, "elsewhere")
	updateStream(t, js, config)
	account := running.GlobalAccount()
	must.Succeed(t, account.AddMapping(orders().Subject, "elsewhere"))
	commit(t, s, 6, 9)
	account.RemoveMapping(orders().Subject)
	err := s.Commit(t.Context(), sinktest.Entities(9, 1), sinktest.At(10))
	wantError(t, err, true, nil, "for shop.orders was stored on the subject elsewhere", "'feedbridge checkpoint set orders'")
	_, err = s.Resume(t.Context())
	wantError(t, err, true, nil, "for shop.orders was stored on the subject elsewhere")
}

// A stream of one topic gets a subject transform while a copy runs.
func TestSubjectTransformOfARunningFeed(t *testing.T) {
	t.Parallel()
	const before, all = 6, 26
	for _, fast := range []bool{false, true} {
		for name, next := range map[string]func(t *testing.T, s *nats.Sink) error{
			"starts again": func(t *testing.T, s *nats.Sink) error {
				_, err := s.Log().Conn().Sink(orders()).Resume(t.Context())
				return err
			},
			"commits": func(t *testing.T, s *nats.Sink) error {
				return s.Commit(t.Context(), sinktest.Entities(all, 1), sinktest.At(all+1))
			},
			"resumes": func(t *testing.T, s *nats.Sink) error {
				_, err := s.Resume(t.Context())
				return err
			},
		} {
			parallel.Run(t, fmt.Sprintf("fast ingest %v, the process %s after it", fast, name), func(t *testing.T) {
				running := runServer(t, &server.Options{JetStream: true})
				js := admin(t, running.ClientURL())
				config := fitting()
				config.AllowBatchPublish = fast
				createStream(t, js, config)
				s := connect(t, nats.Config{URL: running.ClientURL()}).Sink(orders())
				resumeAndCommit(t, s, 0, 3)
				commit(t, s, 3, before)
				transformed := config
				transformed.SubjectTransform = &jetstream.SubjectTransformConfig{Source: orders().Subject, Destination: "elsewhere"}
				updateStream(t, js, transformed)
				commit(t, s, before, all)
				_, err := s.Log().Conn().Sink(orders()).Resume(t.Context())
				wantError(t, err, true, nil, "it transforms subjects")
				updateStream(t, js, config)
				want := []string{"for shop.orders was stored on the subject elsewhere", "'feedbridge checkpoint set orders'"}
				wantError(t, next(t, s), true, nil, want...)
				for _, s := range []*nats.Sink{s, s.Log().Conn().Sink(orders())} {
					_, err := s.Resume(t.Context())
					wantError(t, err, true, nil, want...)
				}
				move(t, s, before)
				resumeAndCommit(t, s, before, all)
				wantFeed(t, s, all)
			})
		}
	}
}
