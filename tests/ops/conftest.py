from emulated import emulate as emulate
