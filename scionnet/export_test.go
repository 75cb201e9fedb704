package scionnet

// PacketIO is packetIO, for tests that put their own packet connection below an endpoint.
type PacketIO = packetIO

// WithPacketIO is cfg with the packet connection of an endpoint.
func (cfg ListenConfig) WithPacketIO(io PacketIO) ListenConfig {
	cfg.packetIO = io
	return cfg
}
