package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Check implements [fleet.Bus]. A missing checkpoint topic that may be created is no error.
func (f *Fleet) Check(ctx context.Context) (members int, err error) {
	ctx, cancel := f.client.withRequestTimeout(ctx)
	defer cancel()
	_, err = f.topic.describeTopic(ctx, f.options.Replication, false)
	if isMissingTopic(err) && f.options.Create {
		err = missingCheckpointTopic(f.client, f.options.Replication).mayCreate(ctx)
	}
	if err == nil {
		err = f.tryHeartbeat(ctx)
	}
	if err == nil {
		members, err = f.countMembers(ctx)
	}
	if err != nil {
		return 0, f.explainError(ctx, causeOf(ctx, err))
	}
	return members, nil
}

// tryHeartbeat returns an error if this user may not join the group. A heartbeat needs the same
// right, and that of no member changes nothing.
func (f *Fleet) tryHeartbeat(ctx context.Context) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation = f.group, -1
	resp, err := req.RequestWith(ctx, f.client.kgo)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	for _, expected := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.GroupIDNotFound, kerr.RebalanceInProgress} {
		if errors.Is(err, expected) {
			return nil
		}
	}
	return err
}

// countMembers returns the number of members of the group, or an error if it is the group of another
// kind of program.
func (f *Fleet) countMembers(ctx context.Context) (int, error) {
	g, err := f.describeGroup(ctx)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound): // brokers since 4.0 say so
		return 0, nil
	case err != nil:
		return 0, err
	case len(g.Members) > 0 && (g.ProtocolType != "consumer" || g.Protocol != "" && g.Protocol != protocolName):
		return 0, kerr.InconsistentGroupProtocol
	}
	return len(g.Members), nil
}
