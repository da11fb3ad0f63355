// A musl program that does nothing, for others to start.
int main(void) { return 0; }
