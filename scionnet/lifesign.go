package scionnet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	cppb "github.com/scionproto/scion/pkg/proto/control_plane"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"braid/pathsel"
)

// ErrNoControl says that the SCION daemon or the AS's control service does not answer, so that
// paths cannot be looked up.
var ErrNoControl = errors.New("no answer")

// CheckControl tests until ctx ends whether the daemon and the control services of the local AS
// answer. A lookup cannot tell: if the control service does not answer, the daemon reports that
// there is no path. The error is ErrNoControl.
func (h *Host) CheckControl(ctx context.Context) error {
	addrs, err := h.ControlServices(ctx)
	if err != nil || len(addrs) == 0 { // the daemon does not use a control service
		return err
	}
	answers := make(chan error, len(addrs))
	for _, a := range addrs {
		go func() { answers <- askControl(ctx, h.ia, a) }()
	}
	for range addrs {
		if err = <-answers; err == nil {
			return nil
		}
	}
	return err
}

// ControlServices returns the addresses of the control services of the local AS.
func (h *Host) ControlServices(ctx context.Context) ([]string, error) {
	var services map[addr.SVC][]string
	if err := h.askDaemon(ctx, func(c daemon.Connector) (err error) {
		services, err = c.SVCInfo(ctx, []addr.SVC{addr.SvcCS})
		return err
	}); err != nil {
		return nil, fmt.Errorf("%w from the SCION daemon: %w", ErrNoControl, err)
	}
	return slices.Clone(services[addr.SvcCS]), nil
}

// askControl asks for segments that a control service has itself: those to the core of its own ISD.
// Any answer will do, even a refusal.
func askControl(ctx context.Context, local pathsel.IA, service string) error {
	c, err := grpc.NewClient("passthrough:///"+service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("ask the control service at %s: %w", service, err)
	}
	defer c.Close()
	core := addr.MustIAFrom(addr.IA(local).ISD(), 0)
	request := &cppb.SegmentsRequest{SrcIsdAs: uint64(local), DstIsdAs: uint64(core)}
	_, err = cppb.NewSegmentLookupServiceClient(c).Segments(ctx, request)
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return fmt.Errorf("%w from the control service of %s at %s", ErrNoControl, local, service)
	}
	return nil
}
